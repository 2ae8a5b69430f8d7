// Package docs has the pages that the program prints.
package docs

import _ "embed" // for the schema

// Schema is the JSON schema of the configuration.
//
//go:embed config.schema.json
var Schema []byte

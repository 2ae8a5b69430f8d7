// Package docs has the pages that the program prints. It is in their folder, since it embeds them.
package docs

import _ "embed" // for the schema

// Schema is the JSON schema of the configuration.
//
//go:embed config.schema.json
var Schema []byte

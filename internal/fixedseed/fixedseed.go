// Package fixedseed is package testutil under an earlier name.
package fixedseed

import _ "tributary/internal/testutil" // which sets the seed

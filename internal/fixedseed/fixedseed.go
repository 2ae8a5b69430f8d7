// Package fixedseed has the property tests of those who import it draw the same each time: what they find they find where it was made, and
// not in somebody else's run. `go test -rapid.seed=N` draws otherwise, with 0 each time anew, and `-rapid.checks=N` more.
package fixedseed

import (
	"flag"

	_ "pgregory.net/rapid" // which has the flag
)

func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}

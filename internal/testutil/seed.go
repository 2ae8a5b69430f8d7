package testutil

import (
	"flag"

	_ "pgregory.net/rapid" // which has the flag
)

// Property tests of packages that import this one draw the same each time: what they find they find where it was made,
// and not in somebody else's run. `go test -rapid.seed=N` draws otherwise, with 0 each time anew, and `-rapid.checks=N`
// more.
func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}

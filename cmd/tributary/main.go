// Command tributary merges mesh configuration from many places and serves it over xDS. See `tributary help`.
package main

import (
	"context"
	"io"
	"os"
	"strings"

	"tributary/cmd/internal/output"
	"tributary/internal/secret"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], output.Escaped(os.Stdout), output.Escaped(os.Stderr)))
}

// run is the program: it executes the command line args and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var said strings.Builder
	code := exitCode(err, cmd, &said)
	_, _ = io.WriteString(stderr, veilOf(args).Hide(said.String())) // whom to tell if it fails?
	return code
}

// veilOf is over what may be secret in the addresses that a command is given.
func veilOf(args []string) *secret.Veil {
	var veil secret.Veil
	veil.Cover(os.Getenv("TRIBUTARY_SERVER"), os.Getenv("TRIBUTARY_ADMIN"))
	for _, arg := range args {
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(name, "-") {
			arg = value
		}
		veil.Cover(arg)
	}
	return &veil
}

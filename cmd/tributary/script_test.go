package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"

	"tributary/internal/testutil"
	"tributary/sources/consul/consultest"
)

var update = flag.Bool("update", false, "rewrite the files that scripts compare with")

// TestScripts runs testdata/script, in the language of package testscript and with more commands:
//
//	tributary ARG...    runs the program in this process
//	runs FILE           runs it with the arguments of a file
//	exits CODE ARG...   runs it, and wants another exit code than 0
//	says TEXT           wants a text in the output, where \n is the end of a line and $NAME a variable
//	prints TEXT         wants this text on stdout and no other, with ages such as 3s as Ns
//	awaits TEXT ARG...  runs the program until it says the text
//	serves ARG...       starts `tributary serve` on free ports, for the rest of the script, and sets XDS and ADMIN
//	consul              starts a store, and sets CONSUL, its address, and STORE
//	put KEY FILE        writes a value of the store
//	refuses CODE TEXT   has the store answer with an error
//	keys KEY...         wants these keys in the store
//	certificate         writes cert.pem and key.pem
func TestScripts(t *testing.T) {
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Values[scriptT{}] = env.T()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"tributary": func(ts *testscript.TestScript, _ bool, args []string) { runScripted(ts, 0, args) },
			"runs": func(ts *testscript.TestScript, _ bool, args []string) {
				runScripted(ts, 0, strings.Fields(ts.ReadFile(args[0])))
			},
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				runScripted(ts, code, args[1:])
			},
			"says": func(ts *testscript.TestScript, neg bool, args []string) {
				text, output := scriptText(ts, args), ts.ReadFile("stdout")+ts.ReadFile("stderr")
				if strings.Contains(output, text) == neg {
					ts.Fatalf("says %q is %v of:\n%s", text, neg, output)
				}
			},
			"prints": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := ages.ReplaceAllString(ts.ReadFile("stdout"), "Ns"); got != scriptText(ts, args) {
					ts.Fatalf("got %q", got)
				}
			},
			"certificate": func(ts *testscript.TestScript, _ bool, _ []string) {
				t := scriptTest(ts)
				testutil.NewAuthority(t).Loopback(time.Now().Add(time.Hour)).Files(ts.Getenv("WORK"))
			},
			"consul": func(ts *testscript.TestScript, _ bool, _ []string) {
				store := consultest.New(scriptTest(ts))
				ts.Setenv("CONSUL", store.Address())
				ts.Setenv("STORE", "consul-kv://"+store.Address()+"/mesh")
				for name, run := range map[string]func([]string){
					"put": func(args []string) { store.Set(args[0], ts.ReadFile(args[1])) },
					"refuses": func(args []string) {
						code, err := strconv.Atoi(args[0])
						ts.Check(err)
						store.Answer(code, args[1])
					},
					"keys": func(args []string) {
						assert.Equal(scriptTest(ts), strings.Join(args, " "), strings.Join(store.Keys(), " "))
					},
				} {
					ts.SetCmd(name, func(_ *testscript.TestScript, _ bool, args []string) { run(args) })
				}
			},
			"awaits": func(ts *testscript.TestScript, _ bool, args []string) {
				text := scriptText(ts, args[:1])
				eventually(scriptTest(ts), func() error {
					got := command(scriptTest(ts), args[1:]...)
					return contains(got.stdout+got.stderr, text)
				})
			},
			"serves": func(ts *testscript.TestScript, _ bool, args []string) {
				serveScripted(ts, args).awaitReady(scriptTest(ts))
			},
		},
	})
}

var ages = regexp.MustCompile(`\b\d+s\b`)

// scriptT has scripts run one after the other, since they change the directory and the environment of the process.
type scriptT struct{ *testing.T }

func (scriptT) Parallel()     {}
func (scriptT) Verbose() bool { return testing.Verbose() }

func (s scriptT) Run(name string, script func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { script(scriptT{t}) })
}

// scriptTest returns the test of a script, in the script's directory and environment.
func scriptTest(ts *testscript.TestScript) *testing.T {
	t := ts.Value(scriptT{}).(scriptT).T
	t.Chdir(ts.MkAbs("."))
	for _, name := range []string{envServer, envAdmin, envToken, envCA, envKey} {
		t.Setenv(name, ts.Getenv(name))
	}
	t.Setenv("XDG_STATE_HOME", cmp.Or(ts.Getenv("XDG_STATE_HOME"), os.DevNull))
	return t
}

var scriptVariable = regexp.MustCompile(`\$[A-Z0-9]+`)

// scriptText returns the text that a script wants.
func scriptText(ts *testscript.TestScript, args []string) string {
	text := strings.ReplaceAll(strings.Join(args, " "), `\n`, "\n")
	return scriptVariable.ReplaceAllStringFunc(text, func(name string) string { return cmp.Or(ts.Getenv(name[1:]), name) })
}

// libraryWords are in no message.
var libraryWords = []string{"rpc error", "strconv", "slog:", "desc =", "dial tcp", "net/http", "tls: ", "name resolver"}

func runScripted(ts *testscript.TestScript, code int, args []string) {
	t := scriptTest(ts)
	got := command(t, args...)
	_, _ = fmt.Fprint(ts.Stdout(), got.stdout)
	_, _ = fmt.Fprint(ts.Stderr(), got.stderr)
	if got.code != code {
		ts.Fatalf("exit code %d, not %d: %s%s", got.code, code, got.stdout, got.stderr)
	}
	if len(args) > 0 && (code != 0 || args[0] != "bootstrap") { // its hints have flags of Envoy
		onlyItsFlags(t, args, got.stderr)
	}
	for _, word := range libraryWords {
		assert.NotContains(t, got.stderr, word, "%v", args)
	}
}

func serveScripted(ts *testscript.TestScript, args []string) server {
	s := serving(scriptTest(ts), append(freely, args...)...)
	ts.Setenv("XDS", s.xds)
	ts.Setenv("ADMIN", s.admin)
	return s
}

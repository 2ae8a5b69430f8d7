package main

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
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
//	input FILE          has the program read a file as its standard input
//	inits ARG...        runs `tributary init` on a machine without registries
//	serves ARG...       starts `tributary serve`, without -c on free ports, for the rest of the script, and sets XDS,
//	                    XDSTLS and ADMIN
//	starts ARG...       starts it, and does not wait until it is ready
//	stops               ends the server that started last
//	watches ARG...      runs the program in the background, for the rest of the script
//	shows log|events    prints the log of the server that started last, or the output of watches that started last
//	answers CODE METHOD PATH
//	                    sends a request to ADMIN, and wants this status
//	pages CODE DIR      starts an HTTP server of the files in a directory, with this status, and sets PAGES
//	consul              starts a store, and sets CONSUL, its address, and STORE
//	put KEY FILE        writes a value of the store
//	value KEY           prints a value of the store
//	deletes KEY         deletes a key of the store
//	refuses CODE TEXT   has the store answer with an error
//	keys KEY...         wants these keys in the store
//	certificate         writes cert.pem, key.pem and ca.pem
//
// The ARGs of awaits may also be log, events, or METHOD PATH.
func TestScripts(t *testing.T) {
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Values[stateKey{}] = &scriptState{T: env.T().(scriptT).T}
			env.Setenv("PROGRAM", os.Args[0])
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"tributary": func(ts *testscript.TestScript, _ bool, args []string) { runScripted(ts, 0, args) },
			"runs": func(ts *testscript.TestScript, _ bool, args []string) {
				runScripted(ts, 0, strings.Fields(ts.ReadFile(args[0])))
			},
			"exits":   runWithCode,
			"answers": runWithCode,
			"shows":   func(ts *testscript.TestScript, _ bool, args []string) { runScripted(ts, 0, args) },
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
			"input": func(ts *testscript.TestScript, _ bool, args []string) {
				file, err := os.Open(ts.MkAbs(args[0]))
				ts.Check(err)
				before := os.Stdin
				os.Stdin = file
				ts.Defer(func() {
					os.Stdin = before
					ts.Check(file.Close())
				})
			},
			"inits": func(ts *testscript.TestScript, _ bool, args []string) {
				t, command := scriptTest(ts), initOf([]check.Registry{})
				command.SetArgs(args)
				command.SetOut(ts.Stdout())
				require.NoError(t, command.ExecuteContext(t.Context()))
			},
			"certificate": func(ts *testscript.TestScript, _ bool, _ []string) {
				authority := testutil.NewAuthority(scriptTest(ts))
				authority.Loopback(time.Time{}).Files(ts.Getenv("WORK"))
				ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), []byte(authority.PEM), 0o600))
			},
			"pages": func(ts *testscript.TestScript, _ bool, args []string) {
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				dir := ts.MkAbs(args[1])
				pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					text, err := os.ReadFile(dir + r.URL.Path)
					if err != nil {
						http.NotFound(w, r)
						return
					}
					w.WriteHeader(code)
					_, _ = w.Write(text)
				}))
				ts.Defer(pages.Close)
				ts.Setenv("PAGES", pages.URL)
			},
			"consul": func(ts *testscript.TestScript, _ bool, _ []string) {
				store := consultest.New(scriptTest(ts))
				ts.Setenv("CONSUL", store.Address())
				ts.Setenv("STORE", "consul-kv://"+store.Address()+"/mesh")
				for name, run := range map[string]func([]string){
					"put":     func(args []string) { store.Set(args[0], ts.ReadFile(args[1])) },
					"value":   func(args []string) { _, _ = fmt.Fprint(ts.Stdout(), store.Get(args[0])) },
					"deletes": func(args []string) { store.Delete(args[0]) },
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
				var answer result
				eventually(scriptTest(ts), func() error {
					answer = scriptResult(ts, args[1:])
					return contains(answer.stdout+answer.stderr, text)
				})
				_, _ = fmt.Fprint(ts.Stdout(), answer.stdout)
			},
			"serves": func(ts *testscript.TestScript, _ bool, args []string) {
				serveScripted(ts, args).awaitReady(scriptTest(ts))
			},
			"starts": func(ts *testscript.TestScript, _ bool, args []string) { serveScripted(ts, args) },
			"stops":  func(ts *testscript.TestScript, _ bool, _ []string) { stateOf(ts).server.stop() },
			"watches": func(ts *testscript.TestScript, _ bool, args []string) {
				t, events := scriptTest(ts), new(testutil.Buffer)
				stateOf(ts).events = events
				t.Cleanup(commandUntil(t, events, args...))
			},
		},
	})
}

var ages = regexp.MustCompile(`\b\d+s\b`)

// scriptT has scripts run one after the other, since they change the directory and the environment of the process.
type scriptT struct{ *testing.T }

// stateKey is the key of a script's state.
type stateKey struct{}

func (scriptT) Parallel()     {}
func (scriptT) Verbose() bool { return testing.Verbose() }

func (s scriptT) Run(name string, script func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { script(scriptT{t}) })
}

// scriptState is a script's test, its server that started last, and the output of its last watch.
type scriptState struct {
	*testing.T
	server server
	events *testutil.Buffer
}

func stateOf(ts *testscript.TestScript) *scriptState { return ts.Value(stateKey{}).(*scriptState) }

// scriptTest returns the test of a script, in the script's directory and environment.
func scriptTest(ts *testscript.TestScript) *testing.T {
	t := stateOf(ts).T
	t.Chdir(ts.MkAbs("."))
	for _, name := range []string{
		envServer, envAdmin, envToken, envCA, envKey, "EDITOR", "VISUAL", "TMPDIR", "STATE_DIRECTORY",
	} {
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

// scriptResult runs the program, or asks the server of the script.
func scriptResult(ts *testscript.TestScript, args []string) result {
	t, state := scriptTest(ts), stateOf(ts)
	switch strings.Join(args[:min(1, len(args))], "") {
	case http.MethodGet, http.MethodPost:
		status, body := server{admin: ts.Getenv("ADMIN")}.request(t, args[0], args[1])
		return result{code: status, stdout: body}
	case "log":
		return result{stdout: state.server.log.String()}
	case "events":
		return result{stdout: state.events.String()}
	}
	return command(t, args...)
}

// runWithCode runs a command of which the first argument is its exit code.
func runWithCode(ts *testscript.TestScript, _ bool, args []string) {
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	runScripted(ts, code, args[1:])
}

func runScripted(ts *testscript.TestScript, code int, args []string) {
	t := scriptTest(ts)
	got := scriptResult(ts, args)
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
	if args[0] != "-c" {
		args = append(freely, args...)
	}
	s := serving(scriptTest(ts), args...)
	stateOf(ts).server = s
	ts.Setenv("XDS", s.xds)
	ts.Setenv("XDSTLS", s.xdsTLS)
	ts.Setenv("ADMIN", s.admin)
	return s
}

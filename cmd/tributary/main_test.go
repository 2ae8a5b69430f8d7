package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/testutil"
)

// asProgram is set in processes that are to be the program, not its test.
const asProgram = "TRIBUTARY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	_ = os.Setenv("XDG_STATE_HOME", os.DevNull) // no test reads the state of another test
	goleak.VerifyTestMain(m)
}

// patience limits the time that a test waits.
const patience = 30 * time.Second

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the program in this process until it ends.
func command(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	require.NoError(t, ctx.Err(), "the command did not end: %v", args)
	return result{code, stdout.String(), stderr.String()}
}

// commandUntil runs the program in this process, as it writes to out, until stop is called.
func commandUntil(t *testing.T, buffer *testutil.Buffer, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, buffer, buffer) }()
	return func() {
		cancel()
		require.Zero(t, <-ended, buffer.String())
	}
}

// program starts the program as a process of its own, in directory dir. It is killed with the test.
func program(t *testing.T, dir string, args ...string) *child {
	t.Helper()
	return launched(t, dir, append([]string{os.Args[0]}, args...)...)
}

// launched is program by way of another command.
func launched(t *testing.T, dir string, args ...string) *child {
	t.Helper()
	return prepared(t, dir, func(*exec.Cmd) {}, args...)
}

// prepared is launched with something done before the start.
func prepared(t *testing.T, dir string, prepare func(*exec.Cmd), args ...string) *child {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &child{Cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	p.Dir, p.Env = dir, append(os.Environ(), asProgram+"=1")
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	prepare(p.Cmd)
	require.NoError(t, p.Start())
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		defer close(ended)
		_ = p.Wait() // ProcessState has it all
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("%v:\n%s%s", args, p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

type child struct {
	*exec.Cmd
	stdout, stderr testutil.Buffer
	ended          <-chan struct{}
}

// await waits for the end of the process and returns its exit code, or -1 if a signal ended it.
func (c *child) await(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-c.ended:
		return c.ProcessState.ExitCode()
	case <-time.After(within):
		require.FailNow(t, "the process did not end", "within %s", within)
		return 0
	}
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.Process.Signal(s))
}

// server is a running `tributary serve`.
type server struct {
	xds, xdsTLS, admin string

	log  interface{ String() string }
	stop func() // ends it, once
}

// listening waits for the line of the log (in JSON) that names the ports.
func listening(t *testing.T, log interface{ String() string }) server {
	t.Helper()
	var s server
	eventually(t, func() error {
		for line := range strings.Lines(log.String()) {
			var entry struct{ Msg, XDS, XDSTLS, Admin string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
				s = server{xds: entry.XDS, xdsTLS: entry.XDSTLS, admin: entry.Admin, log: log}
				return nil
			}
		}
		return errors.New("not listening yet: " + log.String())
	})
	return s
}

// serving runs `tributary serve` in this process until the test ends.
func serving(t *testing.T, args ...string) server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var buffer testutil.Buffer
	ended := make(chan int, 1)
	args = append([]string{"serve", "--log-format", "json"}, args...)
	go func() { ended <- run(ctx, args, &buffer, &buffer) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case code := <-ended:
			require.Zero(t, code, buffer.String())
		case <-time.After(patience):
			t.Error("serve did not end")
		}
	})
	t.Cleanup(stop)
	s := listening(t, &buffer)
	s.stop = stop
	return s
}

// page returns a page of the admin server.
func (s server) page(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return s.request(t, http.MethodGet, path)
}

func (s server) request(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.admin+path, nil)
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { require.NoError(t, resp.Body.Close()) }()
	var b bytes.Buffer
	_, err = b.ReadFrom(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, b.String()
}

func (s server) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if status, body := s.page(t, "/-/ready"); status != http.StatusOK {
			return errors.New(body)
		}
		return nil
	})
}

// eventually waits until look returns no error.
func eventually(t *testing.T, look func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = look(); err == nil {
			return
		}
	}
	require.NoError(t, err, "still after %s", patience)
}

// contains complains if text does not contain part.
func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q is not in:\n%s", part, text)
	}
	return nil
}

// write writes a file, at once as far as readers can see.
func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
}

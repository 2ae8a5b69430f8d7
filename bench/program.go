package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tributary/bench/engine"
	"tributary/bench/process"
)

// The names of the programs in results.
const (
	programTributary = engine.Tributary
	programIstiod    = "istiod"
)

// program is a server that reads the directory by itself.
type program struct {
	name              string
	binary            string
	address           string // of xDS; those of HTTP are known when there is a command
	metrics, profiles string
	plain             bool // responses are not compressed: Envoys would not take that, clients on grpc-go do
	quick             bool // changes are read at once
	command           func(work, rules string) (*exec.Cmd, error)
}

func (f filesFlags) programs() ([]*program, error) {
	t := &program{name: programTributary, binary: f.tributary}
	t.command = func(work, rules string) (*exec.Cmd, error) {
		admin, err := freeAddress()
		if err != nil {
			return nil, err
		}
		t.metrics, t.profiles = admin, admin
		args := []string{"serve", "--listen", t.address, "--admin", admin}
		if !t.plain {
			return exec.Command(t.binary, append(args, "--config-source", "fs://"+rules)...), nil
		}
		file := filepath.Join(work, "tributary.yaml")
		text := fmt.Sprintf("compression: none\nstateDir: \"off\"\nconfigSources: [{name: rules, address: \"fs://%s\"%s}]\n", rules,
			map[bool]string{true: ", quietDelay: 1ms"}[t.quick])
		return exec.Command(t.binary, append(args, "-c", file)...), os.WriteFile(file, []byte(text), 0o600)
	}
	i := &program{name: programIstiod, binary: f.istiod}
	i.command = func(work, rules string) (*exec.Cmd, error) { return istiod(i, work, rules) }

	var present []*program
	for _, p := range []*program{t, i} {
		path, err := filepath.Abs(p.binary)
		if err != nil {
			return nil, err
		}
		p.binary = path
		switch _, err := os.Stat(path); {
		case err == nil:
			present = append(present, p)
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(os.Stderr, "bench: there is no %s; %s is left out\n", p.binary, p.name)
		default:
			return nil, err
		}
	}
	if len(present) == 0 {
		return nil, errors.New("there is no program to measure: build one, or name it with -tributary or -istiod")
	}
	return present, nil
}

// istiod returns the command of an istiod without Kubernetes and with the directory as its only source.
func istiod(p *program, work, rules string) (*exec.Cmd, error) {
	mesh := filepath.Join(work, "mesh.yaml")
	if err := os.WriteFile(mesh, fmt.Appendf(nil, "configSources:\n- address: \"fs://%s\"\nenableAutoMtls: false\n", rules),
		0o600); err != nil {
		return nil, err
	}
	args := []string{
		"discovery", "--registries=", "--meshConfig=" + mesh, "--networksConfig=" + filepath.Join(work, "none"),
		"--grpcAddr=" + p.address, "--secureGRPCAddr=", "--httpsAddr=", "--ctrlz_address=127.0.0.1",
		"--keepaliveTimeout=10m", // it would else cut off clients that have to wait for a processor
	}
	for _, name := range []string{"httpAddr", "monitoringAddr", "ctrlz_port"} {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		switch name {
		case "httpAddr":
			p.profiles = address
		case "monitoringAddr":
			p.metrics = address
		case "ctrlz_port":
			_, address, _ = net.SplitHostPort(address)
		}
		args = append(args, "--"+name+"="+address)
	}
	cmd := exec.Command(p.binary, args...)
	cmd.Env = append(os.Environ(),
		"ENABLE_XDS_API_GENERATOR_AUTH=false", "PILOT_ENABLE_GATEWAY_API=false", "ENABLE_CA_SERVER=false", "PILOT_CERT_PROVIDER=none",
		"POD_NAME=istiod-bench", "POD_NAMESPACE=istio-system",
		"PILOT_MAX_REQUESTS_PER_SECOND=10000", // it would else refuse most streams of a start together
	)
	return cmd, nil
}

// launch starts the program with the files of a directory. The returned value stops it.
func (p *program) launch(work, rules string) (r *running, err error) {
	if p.address, err = freeAddress(); err != nil {
		return nil, err
	}
	r = &running{program: p}
	if r.cmd, err = p.command(work, rules); err != nil {
		return nil, err
	}
	if r.log, err = os.Create(filepath.Join(work, "log")); err != nil {
		return nil, err
	}
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = work, r.log, r.log
	r.started = time.Now()
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, r.log.Close())
	}
	return r, nil
}

// running is a program that runs.
type running struct {
	*program
	cmd     *exec.Cmd
	log     *os.File
	started time.Time
}

func (r *running) pid() int { return r.cmd.Process.Pid }

func (r *running) stop() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	_ = r.log.Close()
}

// blame adds the end of the log to an error.
func (r *running) blame(err error) error {
	return fmt.Errorf("%w; its log ends with %q", err, tail(r.log.Name()))
}

// rest waits until the program has used next to no CPU for a second, and returns its CPU until then. istiod is never
// quite idle.
func (r *running) rest(limit time.Duration) (time.Duration, error) {
	const window, noise = time.Second, 20 * time.Millisecond
	deadline := time.Now().Add(limit)
	for time.Now().Before(deadline) {
		before, err := process.CPUOf(r.pid())
		if err != nil {
			return 0, err
		}
		time.Sleep(window)
		after, err := process.CPUOf(r.pid())
		if err != nil {
			return 0, err
		}
		if after-before <= noise {
			return before, nil
		}
	}
	return 0, errBusy
}

var errBusy = errors.New("the program did not come to rest")

// awaitListener waits until a connection to address succeeds. A gRPC client that came too early would wait a second before
// it tried again.
func awaitListener(address string, deadline time.Time) error {
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the program does not listen: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func freeAddress() (string, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return lis.Addr().String(), lis.Close()
}

// tail returns the end of a file, for a message.
func tail(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-500):])
}

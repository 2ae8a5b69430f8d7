package main

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"time"

	"tributary/bench/role"
)

// child is this program in another process, playing a role.
type child struct {
	role string
	cmd  *exec.Cmd
	rpc  *rpc.Client
}

func startChild(name string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), role.Variable+"="+name)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the %s process: %w", name, err)
	}
	return &child{role: name, cmd: cmd, rpc: jsonrpc.NewClient(pipes{out, stdin})}, nil
}

// errStuck is returned by a call that took longer than any step of the benchmark may.
var errStuck = errors.New("no answer in time")

// call calls a method of the child's role. It gives up after limit, whatever the child does; it is then of no more use.
func (c *child) call(limit time.Duration, method string, args, reply any) error {
	pending := c.rpc.Go(c.role+"."+method, args, reply, make(chan *rpc.Call, 1))
	err := errStuck
	select {
	case <-pending.Done:
		err = pending.Error
	case <-time.After(limit):
	}
	if err != nil {
		return fmt.Errorf("%s.%s: %w", c.role, method, err)
	}
	return nil
}

// stop ends the child: in peace when its input closes, else by force.
func (c *child) stop() {
	_ = c.rpc.Close()
	kill := time.AfterFunc(3*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Wait()
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

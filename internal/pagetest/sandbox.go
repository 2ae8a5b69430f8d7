package pagetest

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long a command may take, or may not print what is waited for.
const patience = time.Minute

// Sandbox is where the commands of pages are run.
type Sandbox struct {
	Dir      string            // they are run here
	Programs map[string]string // scripts for sh that stand for the programs of these names
	Env      []string
	// what stands here for names, addresses and times of the page, in commands, here-documents and what is printed
	Instead map[string]string
	Before  func(Step)         // is called before each command, if it is not nil
	After   func(Step, string) // is called with what each command printed, if it is not nil
	Ends    map[string][]int   // exit codes of the commands that begin so, where it is not 0
	// of commands that begin so and do not end: what they print when they have done what the page is about. They are
	// interrupted then,
	Until   map[string]string
	Stay    []string // but for those that begin so, which Close interrupts
	staying []func()
}

// Run runs the commands of a block one after the other. Its error is where the page and the program do not agree.
func (s *Sandbox) Run(block Block) error {
	binaries := filepath.Join(s.Dir, ".bin")
	if err := os.MkdirAll(binaries, 0o750); err != nil {
		return err
	}
	for name, script := range s.Programs {
		text := []byte("#!/bin/sh\n" + script + "\n")
		if err := os.WriteFile(filepath.Join(binaries, name), text, 0o700); err != nil { //nolint:gosec // it is to be run
			return err
		}
	}
	for _, step := range block.Steps {
		if s.Before != nil {
			s.Before(step)
		}
		printed, err := s.step(binaries, step)
		if err != nil {
			return fmt.Errorf("%s:%d: $ %s\n%w", block.Page, step.Line, step.Command, err)
		}
		if s.After != nil {
			s.After(step, printed)
		}
	}
	return nil
}

// Close interrupts the commands that stay.
func (s *Sandbox) Close() {
	for _, end := range slices.Backward(s.staying) {
		end()
	}
	s.staying = nil
}

func (s *Sandbox) step(bin string, step Step) (printed string, err error) {
	printed, code, err := s.shell(bin, step.Command)
	if err != nil {
		return "", err
	}
	if want := of(s.Ends, step.Command); code != 0 && !slices.Contains(want, code) ||
		code == 0 && want != nil && !slices.Contains(want, 0) {
		return "", fmt.Errorf("exit code %d:\n%s", code, printed)
	}
	if step.Prints != nil {
		if diff := compare(step.Prints, s.shown(printed)); diff != "" {
			return "", fmt.Errorf("the page has -, and it printed +:\n%s", diff)
		}
	}
	return printed, nil
}

// of is what is said of the longest beginning of a command.
func of[T any](blocks map[string]T, command string) (said T) {
	for _, beginning := range slices.SortedFunc(maps.Keys(blocks), func(a, b string) int { return len(a) - len(b) }) {
		if strings.HasPrefix(command, beginning) {
			said = blocks[beginning]
		}
	}
	return said
}

// here is a command with what stands for the names of the page.
func (s *Sandbox) here(command string) string {
	var pairs []string
	// the longest first
	for _, name := range slices.SortedFunc(maps.Keys(s.Instead), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, name, s.Instead[name])
	}
	return strings.NewReplacer(pairs...).Replace(command)
}

// shown is what was printed with the names of the page.
func (s *Sandbox) shown(printed string) string {
	var pairs []string
	// of two names of one thing the first in order
	for _, name := range slices.SortedFunc(maps.Keys(s.Instead), func(a, b string) int {
		return cmp.Or(len(s.Instead[b])-len(s.Instead[a]), strings.Compare(a, b))
	}) {
		pairs = append(pairs, s.Instead[name], name)
	}
	return strings.NewReplacer(pairs...).Replace(printed)
}

// shell runs a command until it ends, or has done what it is for.
func (s *Sandbox) shell(bin, command string) (printed string, code int, err error) {
	cmd := exec.Command("sh", "-c", s.here(command)) //nolint:gosec,noctx // what our pages say; it is interrupted below
	cmd.Dir = s.Dir
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1"), s.Env...)
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output output
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState has it all
	}()
	end := func() {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			_ = syscall.Kill(-cmd.Process.Pid, signal) // it may have ended
			select {
			case <-ended:
				return
			case <-time.After(patience / 6):
			}
		}
		<-ended
	}
	until, stays := of(s.Until, command), slices.ContainsFunc(s.Stay,
		func(beginning string) bool { return strings.HasPrefix(command, beginning) })
	for deadline := time.Now().Add(patience); ; {
		select {
		case <-ended:
			if until != "" {
				return "", 0, fmt.Errorf("it ended:\n%s", output.String())
			}
			return output.String(), cmd.ProcessState.ExitCode(), nil
		case <-time.After(10 * time.Millisecond):
		}
		if until != "" && strings.Contains(output.String(), until) {
			if stays {
				s.staying = append(s.staying, end)
			} else {
				end()
			}
			return output.String(), 0, nil
		}
		if time.Now().After(deadline) {
			end()
			return "", 0, fmt.Errorf("it does not end, or does not print %q:\n%s", until, output.String())
		}
	}
}

// output is what a command has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

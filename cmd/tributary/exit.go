package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/server/admin"
)

// The exit codes. They are part of the command line's contract.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitFindings = 3
	exitRetry    = 75 // EX_TEMPFAIL of sysexits.h
	exitConfig   = 78 // EX_CONFIG of sysexits.h
)

// failure is an error with the exit code that it leads to.
type failure struct {
	code int
	err  error // nil if all was said already
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usage is a failure of the person at the keyboard.
func usage(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// does makes a command do f. Errors that reach the top without having passed here are cobra's own: wrong usage.
func does(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := findServer(cmd)
		if err == nil {
			err = inFlagsOfConnection(cmd, f(cmd, args))
		}
		if _, known := errors.AsType[*failure](err); known || err == nil {
			return err
		}
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		if answer, ok := errors.AsType[*client.StatusError](err); ok && answer.Said == admin.ErrUpgrading.Error() {
			return &failure{exitRetry, err}
		}
		return &failure{exitFailed, err}
	}
}

// exitCode prints err, which cmd failed with, and returns its exit code.
func exitCode(err error, cmd *cobra.Command, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{exitUsage, inFlags(err)}
	}
	_, listsPlaces := f.err.(*config.Error) //nolint:errorlint // what stands before the places makes it a message
	text := ""
	switch {
	case f.err == nil:
	case listsPlaces:
		text = f.err.Error() + "\n" // one place a line, for editors to jump to
	case f.code == exitUsage:
		text = fmt.Sprintf("error: %v\nSee `%s --help`.\n", f.err, cmd.CommandPath())
	default:
		text = fmt.Sprintf("error: %v\n", f.err)
	}
	_, _ = io.WriteString(stderr, text) // whom to tell if it fails?
	return f.code
}

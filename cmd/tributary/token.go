package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tributary/server/identity"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make tokens by which clients prove who they are",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenNew())
	return cmd
}

func newTokenNew() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "new NAME --file FILE",
		Short: "Make a token, and add its hash to a file of tokens",
		Long: `New makes a token for the client of that name, prints it, and adds its hash to the file, which is the identity.tokens of the
configuration. A server that runs reads the file again by itself. The token itself is kept nowhere.

To replace a token, make another of the same name, and delete the old line when the client has the new one: that ends the
streams that came with the old one.`,
		Example: `  tributary token new ci --file /etc/tributary/tokens > ci.token`,
		Args:    cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			token, line, err := identity.NewToken(args[0])
			if err != nil {
				return &failure{exitUsage, err}
			}
			if err := writable(file); err != nil {
				return err
			}
			if _, err = fmt.Fprintln(cmd.OutOrStdout(), token); err != nil { // a token that nobody has is not to be taken
				return err
			}
			return appendTo(file, line)
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "file of hashed tokens; it is made if there is none")
	_ = cmd.MarkFlagRequired("file") // there is one
	return cmd
}

// writable says why a file cannot be written.
func writable(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// appendTo adds a line to a file, which nobody but its owner reads if it is made.
func appendTo(file, line string) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	_, err = f.WriteString(line) // at once, so that who reads meanwhile reads all of it or nothing
	return err
}

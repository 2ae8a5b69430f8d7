package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tributary/server/identity"
)

func newToken() *cobra.Command {
	return group(&cobra.Command{Use: "token", Short: "Make tokens that prove the identity of clients"}, newTokenNew())
}

func newTokenNew() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "new NAME --file FILE",
		Short: "Make a token, and add its hash to a file of tokens",
		Long: `New makes a token for the client of that name, prints it, and adds its hash to the file, which is the
identity.tokens of the configuration. A running server notices the change of the file. The token itself is not
stored.

To replace a token, make another of the same name. When the client has the new one, delete the old line: that ends the
streams of clients with the old token.`,
		Example: `  tributary token new ci --file /etc/tributary/tokens > ci.token`,
		Args:    cobra.ExactArgs(1),
		RunE: runCommand(func(command *cobra.Command, args []string) error {
			token, line, err := identity.NewToken(args[0])
			if err != nil {
				return &failure{exitUsage, err}
			}
			if err := writable(file); err != nil {
				return err
			}
			// A token that was not printed must not be accepted.
			if _, err = fmt.Fprintln(command.OutOrStdout(), token); err != nil {
				return err
			}
			return appendTo(file, line)
		}),
	}
	command.Flags().StringVar(&file, "file", "", "file of hashed tokens; created if it is missing")
	_ = command.MarkFlagRequired("file") // there is one
	return command
}

// writable checks that a file can be written, and makes a missing one with rights for its owner only.
func writable(file string) error {
	opened, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return opened.Close()
}

func appendTo(file, line string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	opened, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = opened.WriteString(line) // in one step, so that concurrent readers see the old or the new file
	return errors.Join(err, opened.Close())
}

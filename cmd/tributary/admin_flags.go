package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/config"
)

type adminFlags struct {
	server  adminServer
	config  string // of the server
	timeout time.Duration
	secure  secureFlags
}

// answerTimeout is the default limit of the wait for an answer.
const answerTimeout = 10 * time.Second

func (f *adminFlags) add(command *cobra.Command) {
	f.server.add(command, "address of tributary's admin server")
	addConfig(command, &f.config, " of the server, for the address in its listen.admin")
	command.Flags().DurationVar(&f.timeout, "timeout", answerTimeout, "how long to wait for the answer")
	f.secure.add(command)
}

func (f *adminFlags) client() *client.Admin {
	return f.server.secured(&f.secure, f.timeout)
}

// show prints the page at path, which it decodes into v: unchanged with -o json, else by text.
func (f *adminFlags) show(
	ctx context.Context, command *cobra.Command, format *choice, path string, query url.Values, v any,
	text func(io.Writer) error,
) error {
	page, err := f.client().Get(ctx, path, query, v)
	if err != nil {
		return err
	}
	if format.value == "json" {
		_, err = command.OutOrStdout().Write(page)
		return err
	}
	return text(command.OutOrStdout())
}

// post calls the action at a path in the name of the user, and prints the answer.
func (f *adminFlags) post(ctx context.Context, command *cobra.Command, path string, query url.Values) error {
	query.Set("by", userAtHost())
	answer, err := f.client().Post(ctx, path, query)
	if err != nil {
		return err
	}
	f.nameServer(command)
	_, err = io.WriteString(command.OutOrStdout(), answer)
	return err
}

// posting makes a command call the action at a path with its argument as the parameter.
func posting(path, parameter string, command *cobra.Command) *cobra.Command {
	var flags adminFlags
	command.Args = cobra.ExactArgs(1)
	command.RunE = runInterruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return flags.post(ctx, cmd, path, url.Values{parameter: args})
	})
	flags.add(command)
	return command
}

// nameServer prints the called server, unless a flag names it.
func (f *adminFlags) nameServer(cmd *cobra.Command) {
	if f.server.from != "" {
		cmd.PrintErrf("server: %s\n", f.client().Name())
	}
}

// completing returns a client for completions.
func (f *adminFlags) completing(cmd *cobra.Command) *client.Admin {
	findAdmin(cmd)
	f.timeout = completionTimeout
	return f.client()
}

// adminServer is the flag --admin. It implements pflag.Value.
type adminServer struct {
	address string
	from    string // names the address, unless the flag does
	err     error  // the reason if the address is unknown
}

// add adds the flag; use describes the server.
func (s *adminServer) add(cmd *cobra.Command, use string) {
	cmd.Flags().Var(s, "admin", use+": host:port, https://host:port or unix:///PATH"+defaultsHelp(envAdmin, "listen.admin",
		config.DefaultAdmin))
}

// defaultsHelp describes in the help how a command finds a server that no flag names.
func defaultsHelp(variable, key, address string) string {
	return " (default: " + key + " of the file of -c, else $" + variable + ", else " + key +
		" of the configuration, else " + address + ")"
}

func (s *adminServer) String() string { return s.address }

func (s *adminServer) Type() string { return "address" }

func (s *adminServer) Set(v string) error {
	*s = adminServer{address: v}
	return nil
}

// client returns a client of the server.
func (s *adminServer) client(secure *adsc.TLS) *client.Admin {
	return &client.Admin{Address: s.address, From: s.from, Unknown: s.err, TLS: secure}
}

// secured returns a client with the flags of TLS and the token.
func (s *adminServer) secured(secure *secureFlags, timeout time.Duration) *client.Admin {
	server := s.client(secure.settings())
	server.Secure, server.TokenFile, server.Timeout = secure.given(), secure.tokenFile(), timeout
	return server
}

// The variables that name a server if no flag does.
const (
	envServer = "TRIBUTARY_SERVER"
	envAdmin  = "TRIBUTARY_ADMIN"
)

// findAdmin sets the flag --admin of a command, if the user did not, to the server that the environment or the
// configuration names.
func findAdmin(command *cobra.Command) {
	flag := command.Flags().Lookup("admin")
	if flag == nil || flag.Changed {
		return
	}
	server, ok := flag.Value.(*adminServer)
	if !ok {
		return // of serve
	}
	server.address, server.from, server.err = findAddress(command, envAdmin, "listen.admin", config.DefaultAdmin, adminOf)
	if server.err != nil {
		server.err = &failure{exitConfig, fmt.Errorf("the admin server is not known; name it with --admin (by default it is "+
			"%s): %w",
			config.DefaultAdmin, server.err)}
	}
}

// findAddress returns the address of a server without a flag, and its origin: the file of -c, the variable, the first
// default configuration file, or "the default" for the default address.
func findAddress(command *cobra.Command, variable, key, usual string, addressOf func(*config.Listen) string) (
	address, from string, err error,
) {
	if given := os.Getenv(variable); given != "" && !command.Flags().Changed("config") {
		return given, "$" + variable, nil
	}
	listen, file, err := configuredListen(command)
	if err != nil || listen == nil {
		return usual, "the default", err
	}
	return addressOf(listen), key + " of " + file, nil
}

// adminOf returns the address of the admin server of a configuration, for clients on this machine.
func adminOf(l *config.Listen) string {
	address := reachable(l.Admin)
	if l.AdminTLS != nil && !strings.HasPrefix(address, "unix://") {
		return "https://" + address
	}
	return address
}

// configuredListen returns the listeners in the configuration file of a command; nil if there is no file.
func configuredListen(cmd *cobra.Command) (listen *config.Listen, file string, err error) {
	if flag := cmd.Flags().Lookup("config"); flag != nil && flag.Changed {
		file = flag.Value.String()
	} else if file, err = config.Find(config.DefaultPaths()); err != nil {
		return nil, "", nil //nolint:nilerr // there need be none
	}
	listen, err = config.LoadListen(file)
	return listen, file, err
}

// reachable returns the address of a listener for clients on the same machine.
func reachable(address string) string {
	if strings.HasPrefix(address, "unix://") {
		path, _, _ := strings.Cut(address, "?") // without its mode
		return path
	}
	host, port, err := net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case err != nil:
		return address
	case host == "", ip != nil && ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/words"
)

// The variables that say which server is meant if no flag does.
const (
	envServer = "TRIBUTARY_SERVER"
	envAdmin  = "TRIBUTARY_ADMIN"
)

// addConfig adds the flag -c; of says more about the file.
func addConfig(cmd *cobra.Command, file *string, of string) {
	cmd.Flags().StringVarP(file, "config", "c", "",
		"configuration file, or directory of *.yaml files"+of+" (default: the first that exists of "+strings.Join(config.DefaultPaths(), ", ")+
			")")
}

// addServerConfig adds the flag -c to a command that asks a server of xDS.
func addServerConfig(cmd *cobra.Command) {
	addConfig(cmd, new(string), " of the server, whose listen says where it is")
	cmd.MarkFlagsMutuallyExclusive("server", "config")
}

// adminServer is the flag --admin. It implements pflag.Value.
type adminServer struct {
	address string
	from    string // what names the address, unless the flag does
	err     error  // why the address is not known
}

// add adds the flag; use says which server is meant.
func (s *adminServer) add(cmd *cobra.Command, use string) {
	cmd.Flags().Var(s, "admin", use+": host:port, https://host:port or unix:///PATH"+orElse(envAdmin, "listen.admin", config.DefaultAdmin))
}

// orElse is how the help says where a command finds a server that no flag names.
func orElse(variable, key, address string) string {
	return " (default: " + key + " of the file of -c, else $" + variable + ", else " + key + " of the configuration, else " + address + ")"
}

func (s *adminServer) String() string { return s.address }

// Type is how the help calls the value.
func (s *adminServer) Type() string { return "address" }

// Set takes an address.
func (s *adminServer) Set(v string) error {
	*s = adminServer{address: v}
	return nil
}

// client asks the server that is meant.
func (s *adminServer) client(secure *adsc.TLS) *client.Admin {
	return &client.Admin{Address: s.address, From: s.from, Unknown: s.err, TLS: secure}
}

// findAdmin has the flag --admin of cmd, if it was not given, name the server of the file that -c names, of the variable, of the first
// default configuration file, or the default server.
func findAdmin(cmd *cobra.Command) {
	flag := cmd.Flags().Lookup("admin")
	if flag == nil || flag.Changed {
		return
	}
	s, ok := flag.Value.(*adminServer)
	if !ok {
		return // of serve
	}
	if *s = (adminServer{address: os.Getenv(envAdmin), from: "$" + envAdmin}); s.address != "" && !cmd.Flags().Changed("config") {
		return
	}
	*s = adminServer{address: config.DefaultAdmin, from: "the default"}
	if l, file, err := configuredListen(cmd); err != nil {
		s.err = &failure{exitConfig, fmt.Errorf("the admin server is not known; name it with --admin (by default it is %s): %w",
			config.DefaultAdmin, err)}
	} else if l != nil {
		*s = adminServer{address: adminOf(l), from: "listen.admin of " + file}
	}
}

// adminOf is the address of the admin server that listens as l says, for who asks it on this machine.
func adminOf(l *config.Listen) string {
	address := reachable(l.Admin)
	if l.AdminTLS != nil && !strings.HasPrefix(address, "unix://") {
		return "https://" + address
	}
	return address
}

// configuredListen returns where the server of the configuration file of cmd listens; nil if there is no file.
func configuredListen(cmd *cobra.Command) (l *config.Listen, file string, err error) {
	if flag := cmd.Flags().Lookup("config"); flag != nil && flag.Changed {
		file = flag.Value.String()
	} else if file, err = config.Find(config.DefaultPaths()); err != nil {
		return nil, "", nil //nolint:nilerr // there need be none
	}
	l, err = config.LoadListen(file)
	return l, file, err
}

// reachable is the address of a listener for who connects on the same machine.
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

// xdsServer is a flag with the address of a server of xDS. It implements pflag.Value.
type xdsServer struct{ address *string }

// newXDSServer returns the flag that sets address; does finds the server if the flag is not given.
func newXDSServer(address *string) xdsServer { return xdsServer{address} }

// defaultServer is the server that is meant if none is given to cmd.
func defaultServer(cmd *cobra.Command) (string, error) {
	given := os.Getenv(envServer)
	if given == "" || cmd.Flags().Changed("config") {
		l, _, err := configuredListen(cmd)
		switch {
		case err != nil:
			return "", &failure{exitConfig, fmt.Errorf("the xDS server is not known; name it with --server: %w", err)}
		case l == nil:
			return config.DefaultXDS, nil
		}
		return reachable(l.XDSAddress()), nil
	}
	address, err := xdsAddress(given)
	if err != nil {
		return given, usage("$%s %s: %w", envServer, given, err)
	}
	return address, nil
}

// findServer has the flag --server of cmd, if cmd asks an xDS server and the flag was not given, name the default server.
func findServer(cmd *cobra.Command) (err error) {
	server := cmd.Flags().Lookup("server")
	if server == nil || server.Changed || cmd.Flags().Changed("store") || cmd.Flags().Changed("at") {
		return nil
	}
	if s, is := server.Value.(xdsServer); is {
		*s.address, err = defaultServer(cmd)
	}
	return err
}

func (s xdsServer) String() string {
	if s.address == nil {
		return ""
	}
	return *s.address
}

// Type is how the help calls the value.
func (s xdsServer) Type() string { return "address" }

// Set takes an address.
func (s xdsServer) Set(v string) (err error) {
	*s.address, err = xdsAddress(v)
	return err
}

// xdsAddress reads the address of a server of xDS as people write it, also as in a configuration.
func xdsAddress(v string) (string, error) {
	if strings.HasPrefix(v, "unix://") {
		return v, nil
	}
	address := strings.TrimPrefix(v, "xds://")
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return "", fmt.Errorf("%s:// is not for xDS: want host:port; what speaks HTTP may be the admin port (listen.admin)", scheme)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "", errors.New("want host:port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("want a port from 1 to 65535, got %s", port)
	}
	return address, nil
}

// noCommand is for commands that are nothing but a place for others: what is given is none of those.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	meant := words.Meant(args[0], names)
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, args[0]) }); meant == "" && i >= 0 {
		meant = " (did you mean " + names[i] + "?)"
	}
	return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant)
}

// explainFlag says which flag may have been meant.
func explainFlag(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage("--%s %s: %s", wrong.GetFlag().Name, wrong.GetValue(), valueWanted(wrong.GetFlag(), errors.Unwrap(wrong)))
	}
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usage("%w%s", err, words.Meant(name, names))
}

// valueWanted says which value a flag wants, where what refused the one that was given is a library.
func valueWanted(f *pflag.Flag, refused error) string {
	switch sort := f.Value.Type(); {
	case f.Name == "log-level":
		return "want debug, info, warn or error"
	case sort == "duration":
		return "want a duration, such as 10s or 5m"
	case sort == "int":
		return "want a whole number"
	case sort == "bool":
		return "want true or false"
	case sort == "stringToString":
		return "want KEY=VALUE"
	}
	return refused.Error()
}

var (
	missing   = regexp.MustCompile(`^required flag\(s\) "([^"]+)".* not set$`)
	oneOf     = regexp.MustCompile(`^at least one of the flags in the group \[(.+)\] is required$`)
	exclusive = regexp.MustCompile(`^if any flags in the group \[.+\] are set none of the others can be; \[(.+)\] were all set$`)
)

// inFlags says in words what the library of commands says of flags that are missing, or do not go together.
func inFlags(err error) error {
	all := func(names, between string) string { return "--" + strings.ReplaceAll(names, " ", between+"--") }
	if m := missing.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s is missing", m[1])
	}
	if m := oneOf.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("give %s", all(m[1], " or "))
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s do not go together: give one of them", all(m[1], " and "))
	}
	return err
}

// sayArguments has cmd, and all below it, say in words which arguments they want.
func sayArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		sayArguments(c)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if _, said := errors.AsType[*failure](err); said || err == nil {
			return err
		}
		given := "no argument"
		if len(args) > 0 {
			given = words.Count(len(args), "argument", "arguments")
		}
		return usage("got %s; want: %s", given, cmd.UseLine())
	}
}

package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/resource"
	"tributary/server/admin"
)

type clientFlags struct {
	server     string
	timeout    time.Duration
	namespace  string
	everywhere bool
	nodeID     string
	metadata   map[string]string
	secure     secureFlags
	log        logFlags
	admin      adminServer // of commands with addAdmin

	version func(resource.Key) string // of the objects, where they have one; or nil
}

// add adds the flags, with a default namespace; the empty one stands for each.
func (f *clientFlags) add(command *cobra.Command, namespace string) {
	command.Flags().Var(xdsServer{&f.server}, "server",
		"host:port of a server of MCP over xDS, tributary or istiod, or of Envoy's types"+
			defaultsHelp(envServer, "listen.xds", config.DefaultXDS))
	command.Flags().DurationVar(&f.timeout, "timeout", answerTimeout, "how long to wait for the first answer")
	command.Flags().StringVarP(&f.namespace, "namespace", "n", namespace, "namespace of the objects")
	command.Flags().BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects of all namespaces")
	command.Flags().StringVar(&f.nodeID, "node-id", "", "id of the node to ask as (default: one that istiod accepts)")
	command.Flags().StringToStringVar(&f.metadata,
		"metadata", nil, "metadata of the node to ask as, such as ISTIO_REVISION=canary")
	command.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	completeFlag(command, "namespace", f.completeNamespaces)
	f.secure.add(command)
	f.log.add(command)
}

func (f *clientFlags) client(cmd *cobra.Command) *client.XDS {
	return &client.XDS{
		Server: f.server, TLS: f.secure.settings(), TokenFile: f.secure.tokenFile(), Timeout: f.timeout,
		NodeID: f.nodeID, Metadata: f.metadata, Log: f.log.logger(cmd.ErrOrStderr()),
	}
}

// selects reports whether the flags select an object. Objects without a namespace are in all of them.
func (f *clientFlags) selects(r *resource.Resource) bool {
	return f.everywhere || f.namespace == "" || r.Key().Namespace == "" || r.Key().Namespace == f.namespace
}

// addAdmin adds the flag of the admin server, which has the ages of objects without a time of creation.
func (f *clientFlags) addAdmin(cmd *cobra.Command) {
	f.admin.add(cmd, "address of the admin server, which knows when objects were first seen; by default it is "+
		"asked only if --server is not given")
}

// adminIsNamed reports whether a flag or variable names the admin server.
func adminIsNamed(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("admin") || os.Getenv(envAdmin) != ""
}

// date sets the times at which the server first saw the objects without a time of creation, if the admin server
// answers.
func (f *clientFlags) date(command *cobra.Command, schema *resource.Schema, resources []*resource.Resource) {
	explicit := adminIsNamed(command)
	if !explicit && (command.Flags().Changed("server") || os.Getenv(envServer) != "" &&
		!command.Flags().Changed("config")) ||
		!slices.ContainsFunc(resources, func(r *resource.Resource) bool { return r.Own().IsZero() }) {
		return
	}
	var seen admin.FirstSeen
	server := f.admin.client(f.secure.settings())
	server.Timeout = ageTimeout
	if _, err := server.Get(command.Context(), "/debug/seen", url.Values{"kind": {string(schema.Kind)}},
		&seen); err != nil {
		if explicit {
			command.PrintErrf("warning: ages: %v\n", err)
		}
		return
	}
	for i, r := range resources {
		resources[i] = r.WithSeen(seen[r.Key().FullName()])
	}
}

// ageTimeout bounds the wait of get for ages: they are not worth more.
const ageTimeout = 2 * time.Second

// xdsServer is a flag with the address of a server of xDS. It implements pflag.Value. runCommand finds the server if
// the flag is not given.
type xdsServer struct{ address *string }

// defaultServer returns the server of a command without a flag that names one.
func defaultServer(cmd *cobra.Command) (string, error) {
	given, from, err := findAddress(cmd, envServer, "listen.xds", config.DefaultXDS,
		func(l *config.Listen) string { return reachable(l.XDSAddress()) })
	if err != nil {
		return "", &failure{exitConfig, fmt.Errorf("the xDS server is not known; name it with --server: %w", err)}
	}
	if from != "$"+envServer {
		return given, nil
	}
	address, err := xdsAddress(given)
	if err != nil {
		return given, usage("%s %s: %w", from, given, err)
	}
	return address, nil
}

// findServer sets the flag --server of a command, if it has one and the user did not set it, to the default server.
func findServer(command *cobra.Command) (err error) {
	server := command.Flags().Lookup("server")
	if server == nil || server.Changed || command.Flags().Changed("store") || command.Flags().Changed("at") {
		return nil
	}
	if s, ok := server.Value.(xdsServer); ok {
		*s.address, err = defaultServer(command)
	}
	return err
}

func (s xdsServer) String() string {
	if s.address == nil {
		return ""
	}
	return *s.address
}

func (s xdsServer) Type() string { return "address" }

func (s xdsServer) Set(v string) (err error) {
	*s.address, err = xdsAddress(v)
	return err
}

// xdsAddress reads the address of a server of xDS as people write it, also as in a configuration.
func xdsAddress(value string) (string, error) {
	if strings.HasPrefix(value, "unix://") {
		return value, nil
	}
	address := strings.TrimPrefix(value, "xds://")
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return "", fmt.Errorf("%s:// is not for xDS: want host:port; an HTTP address may be the admin port (listen.admin)",
			scheme)
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

// addServerConfig adds the flag -c to a command that asks a server of xDS.
func addServerConfig(cmd *cobra.Command) {
	addConfig(cmd, new(string), " of the server, for the address in its listen")
	cmd.MarkFlagsMutuallyExclusive("server", "config")
}

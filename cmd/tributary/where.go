package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/spiffe"
	"tributary/internal/words"
)

// The variables that name a server if no flag does.
const (
	envServer = "TRIBUTARY_SERVER"
	envAdmin  = "TRIBUTARY_ADMIN"
)

// addConfig adds the flag -c; description continues the one of the file.
func addConfig(cmd *cobra.Command, file *string, description string) {
	cmd.Flags().StringVarP(file, "config", "c", "",
		"configuration file, or directory of *.yaml files"+description+" (default: the first that exists of "+
			strings.Join(config.DefaultPaths(), ", ")+")")
}

// addServerConfig adds the flag -c to a command that asks a server of xDS.
func addServerConfig(cmd *cobra.Command) {
	addConfig(cmd, new(string), " of the server, for the address in its listen")
	cmd.MarkFlagsMutuallyExclusive("server", "config")
}

// adminServer is the flag --admin. It implements pflag.Value.
type adminServer struct {
	address string
	from    string // names the address, unless the flag does
	err     error  // the reason if the address is unknown
}

// add adds the flag; use describes the server.
func (s *adminServer) add(cmd *cobra.Command, use string) {
	cmd.Flags().Var(s, "admin", use+": host:port, https://host:port or unix:///PATH"+orElse(envAdmin, "listen.admin",
		config.DefaultAdmin))
}

// orElse describes in the help how a command finds a server that no flag names.
func orElse(variable, key, address string) string {
	return " (default: " + key + " of the file of -c, else $" + variable + ", else " + key +
		" of the configuration, else " + address + ")"
}

func (s *adminServer) String() string { return s.address }
func (s *adminServer) Type() string   { return "address" }

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
	server.address, server.from, server.err = whereIs(command, envAdmin, "listen.admin", config.DefaultAdmin, adminOf)
	if server.err != nil {
		server.err = &failure{exitConfig, fmt.Errorf("the admin server is not known; name it with --admin (by default it is "+
			"%s): %w",
			config.DefaultAdmin, server.err)}
	}
}

// whereIs returns the address of a server without a flag, and its origin: the file of -c, the variable, the first
// default configuration file, or "the default" for the default address.
func whereIs(command *cobra.Command, variable, key, usual string, addressOf func(*config.Listen) string) (
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

// xdsServer is a flag with the address of a server of xDS. It implements pflag.Value. runCommand finds the server if
// the flag is not given.
type xdsServer struct{ address *string }

// defaultServer returns the server of a command without a flag that names one.
func defaultServer(cmd *cobra.Command) (string, error) {
	given, from, err := whereIs(cmd, envServer, "listen.xds", config.DefaultXDS,
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

// noCommand refuses the argument of a command that only has subcommands: it is none of them.
func noCommand(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := words.Each(command.Commands(), (*cobra.Command).Name)
	meant := words.Suggestion(args[0], names)
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, args[0]) }); meant == "" &&
		i >= 0 {
		meant = " (did you mean " + names[i] + "?)"
	}
	return usage("unknown command %q for %q%s", args[0], command.CommandPath(), meant)
}

// explainFlag adds the wanted value, or the most similar flag, to an error about a flag.
func explainFlag(command *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage("--%s %s: %s", wrong.GetFlag().Name, wrong.GetValue(),
			valueWanted(wrong.GetFlag(), errors.Unwrap(wrong)))
	}
	var names []string
	command.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		return usage("%w%s", err, words.Suggestion(name, names))
	}
	return err
}

// valueWanted describes the wanted value of a flag; else it returns the library's refusal of another value.
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

// inFlags replaces the library's messages about missing or conflicting flags.
func inFlags(err error) error {
	flags := func(names, between string) string { return "--" + strings.ReplaceAll(names, " ", between+"--") }
	if m := missing.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s is missing", m[1])
	}
	if m := oneOf.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("give %s", flags(m[1], " or "))
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s do not go together: give one of them", flags(m[1], " and "))
	}
	return err
}

// sayArguments makes a command, and all below it, describe the wanted arguments in words.
func sayArguments(command *cobra.Command) {
	for _, c := range command.Commands() {
		sayArguments(c)
	}
	check := command.Args
	if check == nil {
		return
	}
	command.Args = func(command *cobra.Command, args []string) error {
		err := check(command, args)
		if _, exits := errors.AsType[*failure](err); exits || err == nil {
			return err
		}
		given := "no argument"
		if len(args) > 0 {
			given = words.Count(len(args), "argument", "arguments")
		}
		return usage("got %s; want: %s", given, command.UseLine())
	}
}

// secureFlags configure the security of a command's connections. The environment has the defaults.
type secureFlags struct {
	prefix                    string // of the flags' names; the environment replaces only flags without a prefix
	on                        bool
	ca, cert, key, serverName string
	token                     string
}

// The variables that replace flags.
const (
	envCA         = "TRIBUTARY_TLS_CA"
	envCert       = "TRIBUTARY_TLS_CERT"
	envKey        = "TRIBUTARY_TLS_KEY"
	envServerName = "TRIBUTARY_TLS_SERVER_NAME"
	envToken      = "TRIBUTARY_TOKEN_FILE" //nolint:gosec // the name of a variable
)

var variables = map[string]string{
	"tls-ca": envCA, "tls-cert": envCert, "tls-key": envKey, "tls-server-name": envServerName,
	"token-file": envToken, "admin": envAdmin,
}

// add adds the flags of a command that can show a token.
func (f *secureFlags) add(cmd *cobra.Command) {
	f.addTLS(cmd)
	cmd.Flags().StringVar(&f.token, "token-file", "", "file with a token to show, over TLS (default: $"+envToken+")")
}

// addTLS adds only the flags of TLS.
func (f *secureFlags) addTLS(command *cobra.Command) {
	command.PreRunE = func(*cobra.Command, []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return f.checkToken(command)
	}
	command.Flags().BoolVar(&f.on, "tls", false, "use TLS; it is also used if one of the other flags of TLS is given")
	command.Flags().StringVar(&f.ca, "tls-ca", "",
		"file with the trusted certificates, or spiffe:// for those that the SPIFFE "+
			"Workload API knows (default: $"+envCA+", else those of the system)")
	command.Flags().StringVar(&f.cert, "tls-cert", "",
		"file with the certificate to show, or spiffe:// for that of the SPIFFE Workload API, "+
			"which has the key, too (default: $"+envCert+")")
	command.Flags().StringVar(&f.key, "tls-key", "", "file with its private key (default: $"+envKey+")")
	command.Flags().StringVar(&f.serverName, "tls-server-name", "",
		"name that the server's certificate must have, such as a SPIFFE ID, in place of the host of its address (default: "+
			"$"+envServerName+")")
}

// addFor adds the flags for a second server. Their names begin with the prefix of f.
func (f *secureFlags) addFor(command *cobra.Command, server string) {
	for _, flag := range []struct {
		value     *string
		name, use string
	}{
		{&f.ca, "tls-ca", "certificates to trust"},
		{&f.cert, "tls-cert", "certificate to present"},
		{&f.key, "tls-key", "private key of the certificate"},
		{&f.serverName, "tls-server-name", "name that the server's certificate must have"},
		{&f.token, "token-file", "token to present"},
	} {
		use := flag.use + " for " + server + " (default, if no --" + f.prefix + " flag is given: --" + flag.name + ")"
		command.Flags().StringVar(flag.value, f.prefix+flag.name, "", use)
	}
}

// orVariable returns a value, or that of the variable that replaces its flag.
func (f *secureFlags) orVariable(value, variable string) string {
	if f.prefix != "" {
		return value
	}
	return cmp.Or(value, os.Getenv(variable))
}

func (f *secureFlags) tokenFile() string { return f.orVariable(f.token, envToken) }

// given reports whether a flag, and not only the environment, asks for TLS.
func (f *secureFlags) given() bool {
	return f.on || f.ca != "" || f.cert != "" || f.key != "" || f.serverName != ""
}

// check reports flags that do not go together, by their names.
func (f *secureFlags) check() error {
	tls := f.settings()
	switch {
	case tls == nil || spiffe.Named(tls.ClientCertificate):
		return nil // the connection reports the rest
	case tls.ClientCertificate == "" && tls.PrivateKey != "":
		return usage("--%[1]stls-key is for the certificate of --%[1]stls-cert, which is missing", f.prefix)
	case tls.ClientCertificate != "" && tls.PrivateKey == "":
		return usage("--%[1]stls-cert wants its private key, --%[1]stls-key, too", f.prefix)
	}
	return nil
}

// checkToken reports an error of the token's file, if there is one to send.
func (f *secureFlags) checkToken(command *cobra.Command) error {
	admin := command.Flags().Lookup("admin")
	secure := f.settings() != nil || admin != nil && strings.HasPrefix(admin.Value.String(), "https://")
	if f.token == "" && !secure || f.tokenFile() == "" || command.Flags().Lookup(f.prefix+"token-file") == nil {
		return nil
	}
	token, err := os.ReadFile(f.tokenFile())
	if err != nil {
		return usage("%s: %w", givenBy(command, f.prefix+"token-file"), err)
	}
	if len(bytes.TrimSpace(token)) == 0 {
		return usage("%s: %s is empty", givenBy(command, f.prefix+"token-file"), f.tokenFile())
	}
	return nil
}

// givenBy returns the effective one of a flag and the variable that replaces it.
func givenBy(cmd *cobra.Command, flag string) string {
	if variable := variables[flag]; !cmd.Flags().Changed(flag) && os.Getenv(variable) != "" {
		return "$" + variable
	}
	return "--" + flag
}

// fieldOfTLS finds the fields of adsc.TLS in a message.
var fieldOfTLS = regexp.MustCompile(`(^| and )(caCertificates|clientCertificate|privateKey|subjectAltNames|mode)\b`)

// inFlagsOfConnection replaces an error about an address or the security of a connection by one that names the flag,
// with its prefix, or the variable.
func inFlagsOfConnection(command *cobra.Command, err error, prefix string) error {
	if command.Flags().Lookup("tls-ca") == nil {
		return err
	}
	if wrong, ok := errors.AsType[*client.AddressError](err); ok {
		return usage("%w", wrong)
	}
	if errors.Is(err, adsc.ErrPlainToken) {
		return usage("%s: a token is shown over TLS only: give --tls, or another flag of TLS", givenBy(command, "token-file"))
	}
	field, ok := errors.AsType[*adsc.FieldError](err)
	if !ok {
		return err
	}
	flags := map[string]string{
		"caCertificates": "tls-ca", "clientCertificate": "tls-cert", "privateKey": "tls-key",
		"subjectAltNames": "tls-server-name", "mode": "tls",
	}
	return usage("%s", fieldOfTLS.ReplaceAllStringFunc(field.Error(), func(text string) string {
		m := fieldOfTLS.FindStringSubmatch(text)
		return m[1] + givenBy(command, prefix+flags[m[2]])
	}))
}

// settings returns the TLS settings; nil for plaintext. The connection reports conflicts.
func (f *secureFlags) settings() *adsc.TLS {
	tls := &adsc.TLS{
		Mode: adsc.TLSSimple, CACertificates: f.orVariable(f.ca, envCA), SNI: f.orVariable(f.serverName, envServerName),
		ClientCertificate: f.orVariable(f.cert, envCert), PrivateKey: f.orVariable(f.key, envKey),
	}
	if spiffe.Named(tls.SNI) { // no name that could be sent
		tls.SubjectAltNames, tls.SNI = []string{tls.SNI}, ""
	}
	switch {
	case tls.ClientCertificate != "" || tls.PrivateKey != "":
		tls.Mode = adsc.TLSMutual
	case !f.on && tls.CACertificates == "" && tls.SNI == "" && tls.SubjectAltNames == nil:
		return nil
	}
	return tls
}

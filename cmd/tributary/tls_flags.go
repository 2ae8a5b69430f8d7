package main

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/internal/spiffe"
)

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

// givenBy returns the effective one of a flag and the variable that replaces it.
func givenBy(cmd *cobra.Command, flag string) string {
	if variable := variables[flag]; !cmd.Flags().Changed(flag) && os.Getenv(variable) != "" {
		return "$" + variable
	}
	return "--" + flag
}

// fieldOfTLS finds the fields of adsc.TLS in a message.
var fieldOfTLS = regexp.MustCompile(`(^| and )(caCertificates|clientCertificate|privateKey|subjectAltNames|mode)\b`)

// explainConnection replaces an error about an address or the security of a connection by one that names the flag,
// with its prefix, or the variable.
func explainConnection(command *cobra.Command, err error, prefix string) error {
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
	command.Flags().BoolVar(&f.on, "tls", false, "use TLS; any other TLS flag turns it on, too")
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

// flagOrVariable returns a value, or that of the variable that replaces its flag.
func (f *secureFlags) flagOrVariable(value, variable string) string {
	if f.prefix != "" {
		return value
	}
	return cmp.Or(value, os.Getenv(variable))
}

func (f *secureFlags) tokenFile() string { return f.flagOrVariable(f.token, envToken) }

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

// settings returns the TLS settings; nil for plaintext. The connection reports conflicts.
func (f *secureFlags) settings() *adsc.TLS {
	tls := &adsc.TLS{
		Mode: adsc.TLSSimple, CACertificates: f.flagOrVariable(f.ca, envCA),
		SNI:               f.flagOrVariable(f.serverName, envServerName),
		ClientCertificate: f.flagOrVariable(f.cert, envCert), PrivateKey: f.flagOrVariable(f.key, envKey),
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

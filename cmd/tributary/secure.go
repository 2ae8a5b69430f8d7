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

// secureFlags say how to secure the connections of a command that asks a server. What is not given is taken from the
// environment.
type secureFlags struct {
	on                        bool
	ca, cert, key, serverName string
	token                     string
}

// The variables that stand for flags.
const (
	envCA         = "TRIBUTARY_TLS_CA"
	envCert       = "TRIBUTARY_TLS_CERT"
	envKey        = "TRIBUTARY_TLS_KEY"
	envServerName = "TRIBUTARY_TLS_SERVER_NAME"
	envToken      = "TRIBUTARY_TOKEN_FILE" //nolint:gosec // the name of a variable
)

// variables are those that stand for flags.
var variables = map[string]string{
	"tls-ca": envCA, "tls-cert": envCert, "tls-key": envKey, "tls-server-name": envServerName,
	"token-file": envToken, "admin": envAdmin,
}

// add adds the flags of a command that can show a token.
func (f *secureFlags) add(cmd *cobra.Command) {
	f.addTLS(cmd)
	cmd.Flags().StringVar(&f.token, "token-file", "", "file with a token to show, over TLS (default: $"+envToken+")")
}

// addTLS adds those of TLS alone.
func (f *secureFlags) addTLS(cmd *cobra.Command) {
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return f.checkToken(cmd)
	}
	cmd.Flags().BoolVar(&f.on, "tls", false, "use TLS; it is also used if one of the other flags of TLS is given")
	cmd.Flags().StringVar(&f.ca, "tls-ca", "", "file with the certificates of whom to trust, or spiffe:// for those that the SPIFFE "+
		"Workload API knows (default: $"+envCA+", else those of the system)")
	cmd.Flags().StringVar(&f.cert, "tls-cert", "", "file with the certificate to show, or spiffe:// for that of the SPIFFE Workload API, "+
		"which has the key, too (default: $"+envCert+")")
	cmd.Flags().StringVar(&f.key, "tls-key", "", "file with its private key (default: $"+envKey+")")
	cmd.Flags().StringVar(&f.serverName, "tls-server-name", "",
		"name that the server's certificate must have, such as a SPIFFE ID, in place of the host of its address (default: $"+envServerName+")")
}

func (f *secureFlags) tokenFile() string { return cmp.Or(f.token, os.Getenv(envToken)) }

// given reports whether a flag, and not only the environment, asks for TLS.
func (f *secureFlags) given() bool {
	return f.on || f.ca != "" || f.cert != "" || f.key != "" || f.serverName != ""
}

// check reports what of the flags does not go together, by their names.
func (f *secureFlags) check() error {
	s := f.settings()
	switch {
	case s == nil || spiffe.Named(s.ClientCertificate):
		return nil // the rest is for who connects to say
	case s.ClientCertificate == "" && s.PrivateKey != "":
		return usage("--tls-key is for the certificate of --tls-cert, which is missing")
	case s.ClientCertificate != "" && s.PrivateKey == "":
		return usage("--tls-cert wants its private key, --tls-key, too")
	}
	return nil
}

// checkToken reports what is wrong with the file of the token, if there is one that is to be shown.
func (f *secureFlags) checkToken(cmd *cobra.Command) error {
	admin := cmd.Flags().Lookup("admin")
	secure := f.settings() != nil || admin != nil && strings.HasPrefix(admin.Value.String(), "https://")
	if f.token == "" && !secure || f.tokenFile() == "" || cmd.Flags().Lookup("token-file") == nil {
		return nil
	}
	token, err := os.ReadFile(f.tokenFile())
	if err != nil {
		return usage("%s: %w", givenBy(cmd, "token-file"), err)
	}
	if len(bytes.TrimSpace(token)) == 0 {
		return usage("%s: %s is empty", givenBy(cmd, "token-file"), f.tokenFile())
	}
	return nil
}

// givenBy is the flag, or the variable that stands for it, whichever is in force.
func givenBy(cmd *cobra.Command, flag string) string {
	if variable := variables[flag]; !cmd.Flags().Changed(flag) && os.Getenv(variable) != "" {
		return "$" + variable
	}
	return "--" + flag
}

// fieldOfTLS finds the fields of adsc.TLS in what is said of them.
var fieldOfTLS = regexp.MustCompile(`(^| and )(caCertificates|clientCertificate|privateKey|subjectAltNames|mode)\b`)

// inFlagsOfConnection says which flag, or variable, is meant by what is wrong with whom cmd is to ask, or with how the connection is
// secured.
func inFlagsOfConnection(cmd *cobra.Command, err error) error {
	if cmd.Flags().Lookup("tls-ca") == nil {
		return err
	}
	if wrong, ok := errors.AsType[*client.AddressError](err); ok {
		return usage("%w", wrong)
	}
	if errors.Is(err, adsc.ErrPlainToken) {
		return usage("%s: a token is shown over TLS only: give --tls, or another flag of TLS", givenBy(cmd, "token-file"))
	}
	field, ok := errors.AsType[*adsc.FieldError](err)
	if !ok {
		return err
	}
	flags := map[string]string{
		"caCertificates": "tls-ca", "clientCertificate": "tls-cert", "privateKey": "tls-key", "subjectAltNames": "tls-server-name", "mode": "tls",
	}
	return usage("%s", fieldOfTLS.ReplaceAllStringFunc(field.Error(), func(found string) string {
		m := fieldOfTLS.FindStringSubmatch(found)
		return m[1] + givenBy(cmd, flags[m[2]])
	}))
}

// settings are how to secure connections; nil for plaintext. What does not go together is for who connects to say.
func (f *secureFlags) settings() *adsc.TLS {
	s := &adsc.TLS{
		Mode: adsc.TLSSimple, CACertificates: cmp.Or(f.ca, os.Getenv(envCA)), SNI: cmp.Or(f.serverName, os.Getenv(envServerName)),
		ClientCertificate: cmp.Or(f.cert, os.Getenv(envCert)), PrivateKey: cmp.Or(f.key, os.Getenv(envKey)),
	}
	if spiffe.Named(s.SNI) { // no name that could be sent
		s.SubjectAltNames, s.SNI = []string{s.SNI}, ""
	}
	switch {
	case s.ClientCertificate != "" || s.PrivateKey != "":
		s.Mode = adsc.TLSMutual
	case !f.on && s.CACertificates == "" && s.SNI == "" && s.SubjectAltNames == nil:
		return nil
	}
	return s
}

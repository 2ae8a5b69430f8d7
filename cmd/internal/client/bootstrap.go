package client

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"tributary/adsc"
	"tributary/internal/spiffe"
	"tributary/internal/words"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// Bootstrap say which server, and who asks.
type Bootstrap struct {
	Server     string            // host:port
	NodeID     string            // of Envoy or a gRPC program
	Metadata   map[string]string // of its node; istiod wants GENERATOR=grpc of a gRPC program
	Labels     map[string]string // of its workload
	Admin      string            // host:port of Envoy's admin server; DefaultAdmin if empty
	SPIRE      string            // the socket of SPIRE's agent, which has Envoy's identity
	Identity   string            // or the directory that has it
	Kubernetes bool              // istiod also reads what it finds in Kubernetes
	TLS        *adsc.TLS         // how to secure the connection, by files; nil for plaintext
}

// DefaultEnvoyAdmin is where Envoy's admin server listens.
const DefaultEnvoyAdmin = "127.0.0.1:9901"

//go:embed templates
var templates embed.FS

type bootstrapClient struct{ name, file, hint string }

// bootstrapClients are the programs that there is a template for, each with what to do with it.
var bootstrapClients = []bootstrapClient{
	{"istiod", "istiod.yaml", "This belongs into the mesh configuration of istiod. Start the server before istiod, which exits if its " +
		"config source does not answer."},
	{"envoy", "envoy.yaml", "Start Envoy with it: envoy -c FILE --component-log-level misc:error --drain-strategy immediate. The server " +
		"must serve clusters and listeners (CDS, LDS). " +
		"Without interception the listeners of a sidecar bind 127.0.0.1:<service port>: that port must be free, and of several TCP services on " +
		"one port the oldest has it."},
	{"grpc", "grpc.json", "Name the file in GRPC_XDS_BOOTSTRAP, and dial xds:///HOST:PORT. The server must serve listeners, routes, " +
		"clusters and endpoints."},
	{"tributary", "tributary.yaml", "This is a tributary.yaml, or a part of one."},
}

// BootstrapClients returns the names that Write knows.
func BootstrapClients() []string {
	return words.Each(bootstrapClients, func(c bootstrapClient) string { return c.name })
}

// WriteBootstrap writes the configuration of a client, and returns what to do with it.
func WriteBootstrap(w io.Writer, client string, opts Bootstrap) (hint string, err error) {
	i := slices.Index(BootstrapClients(), client)
	if i < 0 {
		return "", fmt.Errorf("unknown client %q", client)
	}
	host, number, err := hostPort("server", opts.Server)
	if err != nil {
		return "", err
	}
	adminHost, adminPort, err := hostPort("admin", cmp.Or(opts.Admin, DefaultEnvoyAdmin))
	if err != nil {
		return "", err
	}
	identity, err := opts.identity()
	if err != nil {
		return "", err
	}
	secure, err := opts.secure(client, host)
	if err != nil {
		return "", err
	}
	t, err := template.New(bootstrapClients[i].file).Funcs(template.FuncMap{"quote": quote, "object": object}).ParseFS(templates,
		"templates/"+bootstrapClients[i].file)
	if err != nil {
		return "", err
	}
	return bootstrapClients[i].hint, t.Execute(w, map[string]any{
		"Server": opts.Server, "Host": host, "Port": number, "NodeID": opts.NodeID, "Metadata": opts.metadata(bootstrapClients[i].name, identity),
		"ProgramSize": programSize, "Kubernetes": opts.Kubernetes,
		"SPIRE": opts.SPIRE, "SPIRECluster": model.SPIRECluster, "TLS": secure, "AdminHost": adminHost, "AdminPort": adminPort,
	})
}

func hostPort(what, text string) (host string, number uint64, err error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		number, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%s %q: want host:port", what, text)
	}
	return host, number, nil
}

// quote writes s so that it is a string in JSON and in YAML.
func quote(s string) (string, error) {
	text, err := json.Marshal(s)
	return string(text), err
}

// programSize is how large the RE2 program of a regular expression may be, as for Istio's proxies; Envoy's own default is 100, which two
// UUIDs exceed.
const programSize = 32768

// metadata is that of the node, with the labels in it. An Envoy says how large its regular expressions may be.
func (o *Bootstrap) metadata(client, identity string) map[string]any {
	all := make(map[string]any, len(o.Metadata)+2)
	if client == "envoy" {
		all["RE2_MAX_PROGRAM_SIZE"] = strconv.Itoa(programSize)
	}
	for name, value := range o.Metadata {
		all[name] = value
	}
	if identity != "" {
		all[model.MetadataIdentity] = identity
	}
	if len(o.Labels) > 0 {
		all["LABELS"] = o.Labels
	}
	return all
}

// identity returns where the identity of Envoy comes from, as its metadata say; empty if it has none.
func (o *Bootstrap) identity() (string, error) {
	o.SPIRE = strings.TrimPrefix(o.SPIRE, "unix://")
	switch {
	case o.SPIRE != "" && o.Identity != "":
		return "", errors.New("an identity is from SPIRE or from a directory, and not from both")
	case o.SPIRE != "" && !(translate.FitsSocket(o.SPIRE) && filepath.IsAbs(o.SPIRE)):
		return "", fmt.Errorf("socket %q: want an absolute path of at most %d bytes", o.SPIRE, translate.MaxSocketPath)
	case o.SPIRE != "":
		return model.IdentitySPIRE, nil
	case o.Identity != "" && !model.IsDirectory(o.Identity):
		return "", fmt.Errorf("directory %q: want an absolute path", o.Identity)
	}
	return o.Identity, nil
}

// object writes m so that it is an object in JSON and in YAML.
func object(m map[string]any) (string, error) {
	text, err := json.Marshal(m)
	return string(text), err
}

// secure is what the templates are told of TLS.
type secure struct {
	Name, NameType       string   // that the server's certificate must have, and what it is to Envoy
	CA, Certificate, Key string   // files
	CAText               string   // what is in CA
	Names                []string // of which the server's certificate must have one, in place of Name
}

// secure returns what the template of a client is told of TLS, of a server on host; nil for plaintext.
func (o *Bootstrap) secure(client, host string) (*secure, error) {
	if o.TLS == nil || !o.TLS.Secure() {
		return nil, nil
	}
	if err := o.TLS.Check(); err != nil {
		return nil, err
	}
	s := &secure{
		Name: cmp.Or(o.TLS.SNI, host), NameType: "DNS",
		CA: o.TLS.CACertificates, Certificate: o.TLS.ClientCertificate, Key: o.TLS.PrivateKey, Names: o.TLS.SubjectAltNames,
	}
	if net.ParseIP(s.Name) != nil {
		s.NameType = "IP_ADDRESS"
	}
	switch {
	case s.CA == "":
		return nil, errors.New("the file with the certificates to trust is needed (--tls-ca): what a client trusts otherwise is not known here")
	case client == "tributary":
		return s, nil
	case spiffe.Named(s.CA) || spiffe.Named(s.Certificate):
		return nil, fmt.Errorf("spiffe:// is for clients that ask a SPIFFE Workload API, as tributary does: name files for %s, such as "+
			"spiffe-helper writes them", client)
	case len(s.Names) > 0 && client == "envoy":
		s.Name, s.NameType = s.Names[0], "URI"
		return s, nil
	case len(s.Names) > 0:
		return nil, fmt.Errorf("%s knows a server by the name of its host, not by %s", client, s.Names[0])
	case client != "istiod":
		return s, nil
	case o.TLS.Mode == adsc.TLSMutual:
		return nil, errors.New("istiod shows no certificate to its config sources, whatever its configuration says")
	}
	text, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, fmt.Errorf("whom to trust: %w", err)
	}
	s.CAText = string(text)
	return s, nil
}

// GRPC is the configuration of the channel credentials named tls (gRFC A65).
func (s *secure) GRPC() map[string]any {
	all := map[string]any{"ca_certificate_file": s.CA}
	if s.Certificate != "" {
		all["certificate_file"], all["private_key_file"] = s.Certificate, s.Key
	}
	return all
}

// Tributary is the tlsSettings of a source.
func (s *secure) Tributary() map[string]any {
	all := map[string]any{"mode": adsc.TLSSimple, "caCertificates": s.CA}
	if len(s.Names) > 0 {
		all["subjectAltNames"] = s.Names
	} else {
		all["sni"] = s.Name
	}
	if s.Certificate != "" {
		all["mode"], all["clientCertificate"] = adsc.TLSMutual, s.Certificate
	}
	if s.Key != "" {
		all["privateKey"] = s.Key
	}
	return all
}

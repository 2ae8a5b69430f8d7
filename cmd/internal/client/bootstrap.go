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

// Bootstrap has the server and the client's node.
type Bootstrap struct {
	Server     string            // host:port
	NodeID     string            // of Envoy or a gRPC program
	Metadata   map[string]string // of its node; istiod wants GENERATOR=grpc of a gRPC program
	Labels     map[string]string // of its workload
	Admin      string            // host:port of Envoy's admin server; DefaultAdmin if empty
	SPIRE      string            // socket of the SPIRE agent that has Envoy's identity
	Identity   string            // or the directory that has it
	Kubernetes bool              // istiod also reads objects of Kubernetes
	TLS        *adsc.TLS         // with files; nil for plaintext
}

// DefaultEnvoyAdmin is the address of Envoy's admin server.
const DefaultEnvoyAdmin = "127.0.0.1:9901"

//go:embed templates
var templates embed.FS

type bootstrapTarget struct{ name, file, hint string }

// bootstrapTargets are the programs with a template, and a hint to use it.
var bootstrapTargets = []bootstrapTarget{
	{
		"istiod", "istiod.yaml",
		"This belongs into the mesh configuration of istiod. Start the server before istiod, which exits if its " +
			"config source does not answer.",
	},
	{
		"envoy", "envoy.yaml",
		"Start Envoy with it: envoy -c FILE --component-log-level misc:error --drain-strategy immediate. The server " +
			"must serve clusters and listeners (CDS, LDS). " +
			"Without interception the listeners of a sidecar bind 127.0.0.1:<service port>: that port must be free, and of " +
			"several TCP services on " +
			"one port the oldest has it.",
	},
	{
		"grpc", "grpc.json",
		"Name the file in GRPC_XDS_BOOTSTRAP, and dial xds:///HOST:PORT. The server must serve listeners, routes, " +
			"clusters and endpoints.",
	},
	{"tributary", "tributary.yaml", "This is a tributary.yaml, or a part of one."},
}

// BootstrapClients returns the clients that WriteBootstrap supports.
func BootstrapClients() []string {
	return words.Each(bootstrapTargets, func(target bootstrapTarget) string { return target.name })
}

// WriteBootstrap writes the configuration of a client, and returns a hint to use it.
func WriteBootstrap(writer io.Writer, client string, opts Bootstrap) (hint string, err error) {
	index := slices.Index(BootstrapClients(), client)
	if index < 0 {
		return "", fmt.Errorf("unknown client %q", client)
	}
	host, number, err := parseHostPort("server", opts.Server)
	if err != nil {
		return "", err
	}
	adminHost, adminPort, err := parseHostPort("admin", cmp.Or(opts.Admin, DefaultEnvoyAdmin))
	if err != nil {
		return "", err
	}
	identity, err := opts.identity()
	if err != nil {
		return "", err
	}
	secure, err := opts.tlsSettings(client, host)
	if err != nil {
		return "", err
	}
	parsed, err := template.New(bootstrapTargets[index].file).Funcs(template.FuncMap{"json": jsonText}).ParseFS(templates,
		"templates/"+bootstrapTargets[index].file)
	if err != nil {
		return "", err
	}
	return bootstrapTargets[index].hint, parsed.Execute(writer, map[string]any{
		"Server": opts.Server, "Host": host, "Port": number, "NodeID": opts.NodeID,
		"Metadata":    opts.metadata(bootstrapTargets[index].name, identity),
		"ProgramSize": programSize, "Kubernetes": opts.Kubernetes,
		"SPIRE": opts.SPIRE, "SPIRECluster": model.SPIRECluster, "TLS": secure, "AdminHost": adminHost,
		"AdminPort": adminPort,
	})
}

func parseHostPort(label, text string) (host string, number uint64, err error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil {
		number, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%s %q: want host:port", label, text)
	}
	return host, number, nil
}

// jsonText encodes a string or an object, in JSON and so in YAML.
func jsonText(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// programSize limits the RE2 programs of regular expressions, as in Istio's proxies. Two UUIDs exceed Envoy's default,
// 100.
const programSize = 32768

// metadata returns the metadata of the node, with the labels. An Envoy's has the limit of its regular expressions.
func (b *Bootstrap) metadata(client, identity string) map[string]any {
	fields := make(map[string]any, len(b.Metadata)+2)
	if client == "envoy" {
		fields["RE2_MAX_PROGRAM_SIZE"] = strconv.Itoa(programSize)
	}
	for name, value := range b.Metadata {
		fields[name] = value
	}
	if identity != "" {
		fields[model.MetadataIdentity] = identity
	}
	if len(b.Labels) > 0 {
		fields["LABELS"] = b.Labels
	}
	return fields
}

// identity returns the origin of Envoy's identity for its metadata, or an empty text.
func (b *Bootstrap) identity() (string, error) {
	b.SPIRE = strings.TrimPrefix(b.SPIRE, "unix://")
	switch {
	case b.SPIRE != "" && b.Identity != "":
		return "", errors.New("an identity is from SPIRE or from a directory, and not from both")
	case b.SPIRE != "" && !(translate.FitsSocket(b.SPIRE) && filepath.IsAbs(b.SPIRE)):
		return "", fmt.Errorf("socket %q: want an absolute path of at most %d bytes", b.SPIRE, translate.MaxSocketPath)
	case b.SPIRE != "":
		return model.IdentitySPIRE, nil
	case b.Identity != "" && !model.IsDirectory(b.Identity):
		return "", fmt.Errorf("directory %q: want an absolute path", b.Identity)
	}
	return b.Identity, nil
}

// tlsSettings has the settings of TLS for the templates.
type tlsSettings struct {
	Name, NameType       string   // required in the server's certificate, and its type in Envoy
	CA, Certificate, Key string   // files
	CAText               string   // the content of CA
	Names                []string // alternatives for Name in the server's certificate, one of them required
}

// tlsSettings returns the settings of a client for a server on host; nil for plaintext.
func (b *Bootstrap) tlsSettings(client, host string) (*tlsSettings, error) {
	if b.TLS == nil || !b.TLS.Secure() {
		return nil, nil
	}
	if err := b.TLS.Check(); err != nil {
		return nil, err
	}
	settings := &tlsSettings{
		Name: cmp.Or(b.TLS.SNI, host), NameType: "DNS",
		CA: b.TLS.CACertificates, Certificate: b.TLS.ClientCertificate, Key: b.TLS.PrivateKey, Names: b.TLS.SubjectAltNames,
	}
	if net.ParseIP(settings.Name) != nil {
		settings.NameType = "IP_ADDRESS"
	}
	switch {
	case settings.CA == "":
		return nil,
			errors.New("the file with the certificates to trust is needed (--tls-ca): the client's defaults are unknown here")
	case client == "tributary":
		return settings, nil
	case spiffe.Named(settings.CA) || spiffe.Named(settings.Certificate):
		return nil,
			fmt.Errorf("spiffe:// is for clients that ask a SPIFFE Workload API, as tributary does: name files for %s, such as "+
				"spiffe-helper writes them", client)
	case len(settings.Names) > 0 && client == "envoy":
		settings.Name, settings.NameType = settings.Names[0], "URI"
		return settings, nil
	case len(settings.Names) > 0:
		return nil, fmt.Errorf("%s knows a server by the name of its host, not by %s", client, settings.Names[0])
	case client != "istiod":
		return settings, nil
	case b.TLS.Mode == adsc.TLSMutual:
		return nil, errors.New("istiod shows no certificate to its config sources, whatever its configuration says")
	}
	text, err := os.ReadFile(settings.CA)
	if err != nil {
		return nil, fmt.Errorf("certificates to trust: %w", err)
	}
	settings.CAText = string(text)
	return settings, nil
}

// GRPC returns the configuration of the channel credentials named tls (gRFC A65).
func (s *tlsSettings) GRPC() map[string]any {
	fields := map[string]any{"ca_certificate_file": s.CA}
	if s.Certificate != "" {
		fields["certificate_file"], fields["private_key_file"] = s.Certificate, s.Key
	}
	return fields
}

// Tributary returns the tlsSettings of a source.
func (s *tlsSettings) Tributary() map[string]any {
	fields := map[string]any{"mode": adsc.TLSSimple, "caCertificates": s.CA}
	if len(s.Names) > 0 {
		fields["subjectAltNames"] = s.Names
	} else {
		fields["sni"] = s.Name
	}
	if s.Certificate != "" {
		fields["mode"], fields["clientCertificate"] = adsc.TLSMutual, s.Certificate
	}
	if s.Key != "" {
		fields["privateKey"] = s.Key
	}
	return fields
}

// Package xds reads mesh configuration from a server of MCP over xDS: istiod, another tributary, or any other.
//
// The group of a resource is its type URL and name, so that a change costs no more than its own resource. README.md
// describes the behaviour in each situation.
package xds

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/adsc"
	"tributary/sources"
)

// Scheme is the scheme of addresses of xDS servers.
const Scheme = "xds"

// Settings are the options of an xDS source. Zero values stand for the defaults.
type Settings struct {
	// Mode is the variant of the protocol: "auto" (the default), "delta" or "sotw".
	Mode string
	// SubscribedResources are the requested kinds by any of their names, SERVICE_REGISTRY for service entries as in Istio,
	// or type URLs, which pin the API version. None means every kind.
	SubscribedResources []string
	// TLS secures the connection; nil means plaintext.
	TLS *TLS
	// TokenFile is a file with a bearer token. Each stream reads it again.
	TokenFile string

	// NodeID introduces the source. The default has the form that istiod insists on, and the namespace of the identity
	// that the certificate or token names.
	NodeID string
	// NodeMetadata is added to the metadata of the source's node.
	NodeMetadata map[string]string
	// Revision excludes resources with the label of another revision of Istio.
	Revision string
	// Locality of the source, as region/zone/subzone.
	Locality string

	// Resync is the time after a restart or a reconnect when all resources are read and compared once more, in case the
	// server ignored the versions that it got. Default: an hour.
	Resync time.Duration
	// MaxMessageBytes limits the size of one response. Default: adsc.DefaultMaxMessage.
	MaxMessageBytes int64

	// Registerer registers the metrics of the source with its name. Default: none.
	Registerer prometheus.Registerer
	// Hops collects the instances of tributary through which the configuration comes. Loops go unnoticed if nil.
	Hops Hops
}

// TLS has the settings of secure connections.
type TLS = adsc.TLS

// Hops knows the instances of tributary through which the configuration of this program comes. It is safe for
// concurrent use.
type Hops interface {
	// Self identifies this program among them.
	Self() string
	// Reads replaces the instances through which the configuration of a source comes.
	Reads(source any, instances []string)
}

// Source is a sources.Source of an xDS server. It has no state between runs.
type Source struct {
	settings    Settings
	kinds       []kind
	config      adsc.Config // without the fields of one run
	differences prometheus.Counter
	standing    atomic.Pointer[Standing]
}

// defaultResync is an hour. A comparison costs one full read, and only after a stream that resumed.
const defaultResync = time.Hour

var _ sources.Source = (*Source)(nil)

// New returns a source of the server at address, "xds://host:port", or of several servers with equal content,
// "xds://host:port,host:port". An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	servers, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("address: %q: %w", address, err)
	}
	source := &Source{settings: settings, config: adsc.Config{
		Addresses: servers, TLS: settings.TLS, TokenFile: settings.TokenFile,
		MaxMessage: int(settings.MaxMessageBytes), CompareAfter: cmp.Or(settings.Resync, defaultResync),
		Log: slog.New(slog.DiscardHandler), // the source reports its health instead
	}, differences: prometheus.NewCounter(prometheus.CounterOpts{ // of all runs
		Name: "tributary_xds_source_healed_total",
		Help: "Resources that differed from the server's own changes in a full compare.",
	})}
	switch settings.Mode {
	case "", "auto":
		source.config.Mode = adsc.Auto
	case "delta":
		source.config.Mode = adsc.Delta
	case "sotw":
		source.config.Mode = adsc.SotW
	default:
		return nil, fmt.Errorf(`mode: want "auto", "delta" or "sotw", got %q`, settings.Mode)
	}
	if source.kinds, err = subscribedKinds(settings.SubscribedResources); err != nil {
		return nil, fmt.Errorf("subscribedResources: %w", err)
	}
	if settings.TLS != nil {
		if err := settings.TLS.Check(); err != nil {
			return nil, fmt.Errorf("tlsSettings.%w", err)
		}
	}
	if settings.TokenFile != "" && (settings.TLS == nil || !settings.TLS.Secure()) {
		return nil, errors.New("tokenFile: a token must not be sent in plaintext; set tlsSettings")
	}
	if n := strings.Count(settings.Locality, "/"); n > 2 {
		return nil, fmt.Errorf("locality: want region/zone/subzone, got %q", settings.Locality)
	}
	if settings.MaxMessageBytes < 0 {
		return nil, fmt.Errorf("maxMessageBytes: want more than 0, got %d", settings.MaxMessageBytes)
	}
	if d := settings.Resync; d != 0 && (d < time.Second || d > 24*time.Hour) {
		return nil, fmt.Errorf("resync: want 1s to 24h, got %s", d)
	}
	return source, nil
}

// parse returns the servers in an address.
func parse(address string) ([]string, error) {
	rest, ok := strings.CutPrefix(address, Scheme+"://")
	if !ok {
		return nil, fmt.Errorf("want %s://host:port", Scheme)
	}
	if strings.ContainsAny(rest, "/?#@") {
		return nil, fmt.Errorf("want %s://host:port, or several with commas between them", Scheme)
	}
	servers := strings.Split(rest, ",")
	for i, server := range servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil || host == "" {
			return nil, fmt.Errorf("want host:port, got %q", server)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("want a port from 1 to 65535, got %q", port)
		}
		if slices.Contains(servers[:i], server) {
			return nil, fmt.Errorf("%s is named twice", server)
		}
	}
	return servers, nil
}

// collect registers the counter until stop is called. The registerer adds the label that names the source.
func (s *Source) collect() (stop func(), err error) {
	registerer := s.settings.Registerer
	if registerer == nil {
		return func() {}, nil
	}
	if err := registerer.Register(s.differences); err != nil {
		return nil, err
	}
	return func() { registerer.Unregister(s.differences) }, nil
}

// The keys of node metadata.
const (
	metadataGenerator = "GENERATOR"      // selects what istiod sends: "api" for objects, instead of Envoy's configuration
	metadataRevision  = "ISTIO_REVISION" // excludes resources of other revisions
)

// node returns the node of the source. The namespace is that of its identity; empty stands for default.
func (s *Source) node(namespace string) *corev3.Node {
	fields := map[string]*structpb.Value{metadataGenerator: structpb.NewStringValue("api")}
	if s.settings.Revision != "" {
		fields[metadataRevision] = structpb.NewStringValue(s.settings.Revision)
	}
	for k, v := range s.settings.NodeMetadata {
		fields[k] = structpb.NewStringValue(v)
	}
	node := &corev3.Node{
		Id:            cmp.Or(s.settings.NodeID, adsc.NodeID(defaultName(), namespace)),
		UserAgentName: "tributary",
		Metadata:      &structpb.Struct{Fields: fields},
	}
	if s.settings.Locality != "" {
		parts := append(strings.Split(s.settings.Locality, "/"), "", "")
		node.Locality = &corev3.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
	}
	return node
}

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// defaultName names the source by its machine.
func defaultName() string {
	host, _ := os.Hostname() // without a host name, the name is "tributary"
	host = strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(host), "-"), "-")
	return strings.TrimSuffix("tributary-"+host, "-")
}

package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/intake"
	"tributary/resource"
)

// Envoy is asked what it has.
type Envoy struct {
	// Where is http://HOST:PORT or unix:///PATH of its admin server, or a file with its /config_dump?include_eds.
	Where string
	// Client asks; its transport is not used for a unix socket.
	Client *http.Client
}

// IsFile says whether it was asked already, and its answer is in a file.
func (e *Envoy) IsFile() bool { return !strings.Contains(e.Where, "://") }

// Check says what is wrong with the address.
func (e *Envoy) Check() error {
	if strings.HasPrefix(e.Where, "unix://") && len(e.Where) > len("unix://") || e.Where != "" && e.IsFile() {
		return nil
	}
	u, err := url.Parse(e.Where)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("want http://HOST:PORT or unix:///PATH of an Envoy's admin server, or a file, got %q", e.Where)
	}
	return nil
}

// Dump returns what the Envoy has. It is an error if it does not say who it is.
func (e *Envoy) Dump(ctx context.Context) (*Dump, error) {
	text, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	d, err := ParseDump(text)
	if err == nil && d.Node == nil {
		err = errors.New("there is no bootstrap in the dump, which would say who this Envoy is: save all of /config_dump?include_eds")
	}
	if err == nil && !d.members {
		err = errors.New("there are no endpoints in the dump: save /config_dump?include_eds")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Where, err)
	}
	return d, nil
}

func (e *Envoy) read(ctx context.Context) ([]byte, error) {
	base, client := strings.TrimSuffix(e.Where, "/"), *e.Client
	if socket, ok := strings.CutPrefix(e.Where, "unix://"); ok {
		base = "http://localhost"
		client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
	} else if e.IsFile() {
		return readFile(e.Where)
	}
	text, _, err := Get(ctx, &client, base+"/config_dump?include_eds")
	return text, err
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := intake.Read(f, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// Get returns a page, and its headers.
func Get(ctx context.Context, client *http.Client, page string) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // everything was read
	text, err := intake.Read(resp.Body, maxAnswer)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", page, err)
	}
	return text, resp.Header, nil
}

// Expected is the configuration that an Envoy should have now, and what it rejects.
type Expected struct {
	Connected bool      `json:"connected"` // a client with the Envoy's node id is connected
	OnDemand  bool      `json:"on_demand"` // it asks for each virtual host and cluster that it uses
	Refusals  []Refusal `json:"refusals"`
	// Dump is all of it, in the form of an Envoy's config_dump.
	Dump json.RawMessage `json:"dump,omitempty"`
}

// Refusal is a resource that an Envoy rejects.
type Refusal struct {
	TypeURL  string    `json:"type_url"`
	Resource string    `json:"resource,omitempty"` // empty if it is not known
	Error    string    `json:"error"`              // the Envoy's words
	Node     string    `json:"node"`               // of the Envoy
	At       time.Time `json:"at,omitzero"`
}

// The kinds of what an Envoy has, as findings name them.
const (
	cluster     resource.Kind = "Cluster"
	endpoints   resource.Kind = "ClusterLoadAssignment"
	listener    resource.Kind = "Listener"
	routes      resource.Kind = "RouteConfiguration"
	virtualHost resource.Kind = "VirtualHost"
	secret      resource.Kind = "Secret"
)

// Dump is what an Envoy has, or is to have: its config_dump without what is of its bootstrap.
type Dump struct {
	Node  *corev3.Node // nil if the dump has no bootstrap
	Delta bool         // it asks by delta
	// asks are the kinds for which it asks a control plane of itself; what clusters and listeners refer to comes with them.
	asks    map[resource.Kind]bool
	has     map[resource.Kind]map[string]*part
	members bool // the dump is with endpoints
}

// part is a thing that an Envoy has, or is getting, under one name.
type part struct {
	version string        // under which it was sent; endpoints have none
	body    proto.Message // in force; nil if there is none yet, and of secrets
	err     error         // why the body cannot be read
	warming bool          // a newer one, or the first, waits for what it refers to
	refused string        // why Envoy rejected a newer one, or the first
}

// Section is one of a config_dump, as far as it matters. Which of the fields are set depends on its type.
type section struct {
	Type      string `json:"@type"`
	Bootstrap struct {
		Node             json.RawMessage `json:"node"`
		DynamicResources struct {
			ADS source  `json:"ads_config"`
			CDS *source `json:"cds_config"`
			LDS *source `json:"lds_config"`
		} `json:"dynamic_resources"`
	} `json:"bootstrap"`
	ActiveClusters  []state `json:"dynamic_active_clusters"`
	WarmingClusters []state `json:"dynamic_warming_clusters"`
	Listeners       []struct {
		Name    string   `json:"name"`
		Active  *state   `json:"active_state"`
		Warming *state   `json:"warming_state"`
		Error   *failure `json:"error_state"`
	} `json:"dynamic_listeners"`
	Routes         []state `json:"dynamic_route_configs"`
	Endpoints      []state `json:"dynamic_endpoint_configs"`
	ActiveSecrets  []state `json:"dynamic_active_secrets"`
	WarmingSecrets []state `json:"dynamic_warming_secrets"`
}

type source struct {
	ADS  *struct{} `json:"ads"`
	API  *source   `json:"api_config_source"`
	Type string    `json:"api_type"`
}

// isServer says whether it is a control plane, and not a file.
func (s *source) isServer() bool { return s != nil && (s.ADS != nil || s.API != nil) }

func (s *source) isDelta() bool {
	return s != nil && (strings.Contains(s.Type, "DELTA") || s.API.isDelta())
}

type failure struct {
	Details string          `json:"details"`
	Failed  json.RawMessage `json:"failed_configuration"`
}

type state struct {
	Name     string          `json:"name"` // of a secret
	Version  string          `json:"version_info"`
	Cluster  json.RawMessage `json:"cluster"`
	Listener json.RawMessage `json:"listener"`
	Routes   json.RawMessage `json:"route_config"`
	Endpoint json.RawMessage `json:"endpoint_config"`
	Error    *failure        `json:"error_state"`
}

// ParseDump reads a config_dump: that of an Envoy, or one that says what an Envoy is to have.
func ParseDump(text []byte) (*Dump, error) {
	var all struct {
		Configs []json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(text, &all); err != nil || all.Configs == nil {
		return nil, fmt.Errorf("not the config_dump of an Envoy: %w", errors.Join(err, errNoConfigs))
	}
	d := &Dump{asks: make(map[resource.Kind]bool), has: make(map[resource.Kind]map[string]*part)}
	for _, text := range all.Configs {
		var s section
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("not the config_dump of an Envoy: %w", err)
		}
		if err := d.add(&s); err != nil {
			return nil, err
		}
	}
	return d, nil
}

var errNoConfigs = errors.New(`there is no list of "configs"`)

func (d *Dump) add(s *section) error {
	switch s.Type[strings.LastIndexByte(s.Type, '.')+1:] {
	case "BootstrapConfigDump":
		from := &s.Bootstrap.DynamicResources
		d.asks[cluster], d.asks[listener] = from.CDS.isServer(), from.LDS.isServer()
		d.Delta = from.ADS.isDelta() || from.CDS.isDelta() || from.LDS.isDelta()
		if s.Bootstrap.Node == nil {
			return nil
		}
		d.Node = &corev3.Node{}
		if err := lenient.Unmarshal(s.Bootstrap.Node, d.Node); err != nil {
			return fmt.Errorf("node of the bootstrap: %w", err)
		}
		d.Node.Extensions = nil //nolint:staticcheck // what Envoy has built in decides nothing, and is most of a node
	case "EndpointsConfigDump":
		d.members = true
	}
	for _, c := range s.ActiveClusters {
		d.active(cluster, "", &c, c.Cluster)
	}
	for _, c := range s.WarmingClusters {
		_, name, _ := decode(c.Cluster)
		d.part(cluster, name).warming = true
	}
	for _, l := range s.Listeners {
		if l.Name == "" && l.Error != nil { // so Envoy shows one that it never had
			_, l.Name, _ = decode(l.Error.Failed)
		}
		if l.Active != nil {
			d.active(listener, l.Name, l.Active, l.Active.Listener)
		}
		p := d.part(listener, l.Name)
		p.warming = p.warming || l.Warming != nil
		if l.Error != nil {
			p.refused = l.Error.Details
		}
		if p.body == nil && p.err == nil && !p.warming && p.refused == "" {
			delete(d.has[listener], l.Name) // it is draining, and has been dropped
		}
	}
	for _, r := range s.Routes {
		d.active(routes, "", &r, r.Routes)
	}
	for _, e := range s.Endpoints {
		d.active(endpoints, "", &e, e.Endpoint)
	}
	for _, s := range s.ActiveSecrets {
		d.part(secret, s.Name).version = s.Version
	}
	for _, s := range s.WarmingSecrets {
		d.part(secret, s.Name).warming = true
	}
	return nil
}

// part returns what there is of a name.
func (d *Dump) part(kind resource.Kind, name string) *part {
	if d.has[kind] == nil {
		d.has[kind] = make(map[string]*part)
	}
	p := d.has[kind][name]
	if p == nil {
		p = &part{}
		d.has[kind][name] = p
	}
	return p
}

// active notes what is in force. Its name is in the text unless it is given.
func (d *Dump) active(kind resource.Kind, name string, s *state, text json.RawMessage) {
	body, own, err := decode(text)
	if name == "" {
		name = own
	}
	p := d.part(kind, name)
	p.version, p.body, p.err = s.Version, body, err
	if s.Error != nil {
		p.refused = s.Error.Details
	}
}

// lenient leaves out what newer Envoys have that this program does not know.
var lenient = protojson.UnmarshalOptions{DiscardUnknown: true, AllowPartial: true}

// decode returns a thing of a dump, and its name, which is known also if the rest cannot be read.
func decode(text json.RawMessage) (m proto.Message, name string, err error) {
	var named struct {
		Name    string `json:"name"`
		Cluster string `json:"cluster_name"` // of endpoints
	}
	_ = json.Unmarshal(text, &named) // if it is no JSON, it cannot be read anyway
	body := &anypb.Any{}
	if err = lenient.Unmarshal(text, body); err == nil {
		m, err = body.UnmarshalNew()
	}
	return m, named.Name + named.Cluster, err
}

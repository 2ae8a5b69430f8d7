package verify

import (
	"cmp"
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

// Envoy reads the configuration of an Envoy.
type Envoy struct {
	// Where is http://HOST:PORT or unix:///PATH of its admin server, or a file with its /config_dump?include_eds.
	Where string
	// Client sends the request. For a Unix socket, its transport is replaced.
	Client *http.Client
}

// IsFile reports whether Where is a file with a saved dump.
func (e *Envoy) IsFile() bool { return !strings.Contains(e.Where, "://") }

// Check validates the address.
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

// Dump returns the Envoy's resources. It requires the bootstrap in the dump, which has the node.
func (e *Envoy) Dump(ctx context.Context) (*Dump, error) {
	text, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	dump, err := ParseDump(text)
	if err == nil && dump.Node == nil {
		err = errors.New("there is no bootstrap in the dump, which has the node: save all of /config_dump?include_eds")
	}
	if err == nil && !dump.hasEndpoints {
		err = errors.New("there are no endpoints in the dump: save /config_dump?include_eds")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Where, err)
	}
	return dump, nil
}

func (e *Envoy) read(ctx context.Context) ([]byte, error) {
	base, client := strings.TrimSuffix(e.Where, "/"), *e.Client
	if socket, ok := strings.CutPrefix(e.Where, "unix://"); ok {
		base = "http://localhost"
		client.Transport = &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		}
	} else if e.IsFile() {
		return readFile(e.Where)
	}
	text, _, err := Get(ctx, &client, base+"/config_dump?include_eds")
	return text, err
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	text, err := intake.Read(file, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// Get returns a page and its headers.
func Get(ctx context.Context, client *http.Client, page string) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(request)
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

// Expected is the configuration that an Envoy should have now, with its rejections.
type Expected struct {
	Connected bool      `json:"connected"` // a client with the Envoy's node id is connected
	OnDemand  bool      `json:"on_demand"` // the Envoy requests only the virtual hosts and clusters that it uses
	Refusals  []Refusal `json:"refusals"`
	// Dump has the form of an Envoy's config_dump.
	Dump json.RawMessage `json:"dump,omitempty"`
}

// Refusal is a resource that an Envoy rejects.
type Refusal struct {
	TypeURL    string    `json:"type_url"`
	Resource   string    `json:"resource,omitempty"` // empty if Envoy's error names none
	Error      string    `json:"error"`              // the Envoy's message
	Node       string    `json:"node"`               // the Envoy's node ID
	RejectedAt time.Time `json:"at,omitzero"`
}

// The kinds of an Envoy's resources, as findings name them.
const (
	cluster     resource.Kind = "Cluster"
	endpoints   resource.Kind = "ClusterLoadAssignment"
	listener    resource.Kind = "Listener"
	routes      resource.Kind = "RouteConfiguration"
	virtualHost resource.Kind = "VirtualHost"
	secret      resource.Kind = "Secret"
)

// Dump has the present or expected resources of an Envoy: its config_dump without the static ones of the bootstrap.
type Dump struct {
	Node  *corev3.Node // nil if the dump has no bootstrap
	Delta bool         // it uses delta xDS
	// subscribed has the kinds that the bootstrap requests from a control plane. Envoy requests the other kinds because
	// clusters and listeners refer to them.
	subscribed   map[resource.Kind]bool
	resources    map[resource.Kind]map[string]*dumpEntry
	hasEndpoints bool // the dump has a section of endpoints
}

// dumpEntry is a present or pending resource of an Envoy.
type dumpEntry struct {
	version   string        // as the server sent it; endpoints have none
	body      proto.Message // the version in use; nil if there is none, and for secrets
	err       error         // why the body cannot be decoded
	warming   bool          // the newest version waits for resources that it refers to
	rejection string        // Envoy's error about the newest version
}

// dumpSection is a section of a config_dump. Its type determines which fields are set.
type dumpSection struct {
	Type      string `json:"@type"`
	Bootstrap struct {
		Node             json.RawMessage `json:"node"`
		DynamicResources struct {
			ADS configSource  `json:"ads_config"`
			CDS *configSource `json:"cds_config"`
			LDS *configSource `json:"lds_config"`
		} `json:"dynamic_resources"`
	} `json:"bootstrap"`
	ActiveClusters  []dumpedResource `json:"dynamic_active_clusters"`
	WarmingClusters []dumpedResource `json:"dynamic_warming_clusters"`
	Listeners       []struct {
		Name    string          `json:"name"`
		Active  *dumpedResource `json:"active_state"`
		Warming *dumpedResource `json:"warming_state"`
		Error   *updateFailure  `json:"error_state"`
	} `json:"dynamic_listeners"`
	Routes         []dumpedResource `json:"dynamic_route_configs"`
	Endpoints      []dumpedResource `json:"dynamic_endpoint_configs"`
	ActiveSecrets  []dumpedResource `json:"dynamic_active_secrets"`
	WarmingSecrets []dumpedResource `json:"dynamic_warming_secrets"`
}

type configSource struct {
	ADS  *struct{}     `json:"ads"`
	API  *configSource `json:"api_config_source"`
	Type string        `json:"api_type"`
}

// isServer reports whether the source is a control plane, and not a file.
func (s *configSource) isServer() bool { return s != nil && (s.ADS != nil || s.API != nil) }

func (s *configSource) isDelta() bool {
	return s != nil && (strings.Contains(s.Type, "DELTA") || s.API.isDelta())
}

type updateFailure struct {
	Details string          `json:"details"`
	Failed  json.RawMessage `json:"failed_configuration"`
}

type dumpedResource struct {
	Name     string          `json:"name"` // of a secret
	Version  string          `json:"version_info"`
	Cluster  json.RawMessage `json:"cluster"`
	Listener json.RawMessage `json:"listener"`
	Routes   json.RawMessage `json:"route_config"`
	Endpoint json.RawMessage `json:"endpoint_config"`
	Error    *updateFailure  `json:"error_state"`
}

// ParseDump reads the config_dump of an Envoy, or the expected one in the same form.
func ParseDump(text []byte) (*Dump, error) {
	var dump struct {
		Configs []json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(text, &dump); err != nil || dump.Configs == nil {
		return nil, fmt.Errorf("not the config_dump of an Envoy: %w", errors.Join(err, errNoConfigs))
	}
	parsed := &Dump{subscribed: make(map[resource.Kind]bool), resources: make(map[resource.Kind]map[string]*dumpEntry)}
	for _, text := range dump.Configs {
		var section dumpSection
		if err := json.Unmarshal(text, &section); err != nil {
			return nil, fmt.Errorf("not the config_dump of an Envoy: %w", err)
		}
		if err := parsed.addSection(&section); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

var errNoConfigs = errors.New(`there is no list of "configs"`)

func (d *Dump) addSection(section *dumpSection) error {
	switch section.Type[strings.LastIndexByte(section.Type, '.')+1:] {
	case "BootstrapConfigDump":
		dynamic := &section.Bootstrap.DynamicResources
		d.subscribed[cluster], d.subscribed[listener] = dynamic.CDS.isServer(), dynamic.LDS.isServer()
		d.Delta = dynamic.ADS.isDelta() || dynamic.CDS.isDelta() || dynamic.LDS.isDelta()
		if section.Bootstrap.Node == nil {
			return nil
		}
		d.Node = &corev3.Node{}
		if err := lenientJSON.Unmarshal(section.Bootstrap.Node, d.Node); err != nil {
			return fmt.Errorf("node of the bootstrap: %w", err)
		}
		d.Node.Extensions = nil //nolint:staticcheck // large, and without effect
	case "EndpointsConfigDump":
		d.hasEndpoints = true
	}
	for _, c := range section.ActiveClusters {
		d.addActive(cluster, "", &c, c.Cluster)
	}
	for _, c := range section.WarmingClusters {
		_, name, _ := decode(c.Cluster)
		d.entry(cluster, name).warming = true
	}
	for _, dumped := range section.Listeners {
		if dumped.Name == "" && dumped.Error != nil { // Envoy has rejected the first version: only the error has the name
			_, dumped.Name, _ = decode(dumped.Error.Failed)
		}
		if dumped.Active != nil {
			d.addActive(listener, dumped.Name, dumped.Active, dumped.Active.Listener)
		}
		dumpEntry := d.entry(listener, dumped.Name)
		dumpEntry.warming = dumpEntry.warming || dumped.Warming != nil
		if dumped.Error != nil {
			dumpEntry.rejection = dumped.Error.Details
		}
		if dumpEntry.body == nil && dumpEntry.err == nil && !dumpEntry.warming && dumpEntry.rejection == "" {
			delete(d.resources[listener], dumped.Name) // Envoy has removed it, and drains its connections
		}
	}
	for _, r := range section.Routes {
		d.addActive(routes, "", &r, r.Routes)
	}
	for _, e := range section.Endpoints {
		d.addActive(endpoints, "", &e, e.Endpoint)
	}
	for _, section := range section.ActiveSecrets {
		d.entry(secret, section.Name).version = section.Version
	}
	for _, section := range section.WarmingSecrets {
		d.entry(secret, section.Name).warming = true
	}
	return nil
}

// entry returns the entry of a name, and adds it if needed.
func (d *Dump) entry(kind resource.Kind, name string) *dumpEntry {
	if d.resources[kind] == nil {
		d.resources[kind] = make(map[string]*dumpEntry)
	}
	entry := d.resources[kind][name]
	if entry == nil {
		entry = &dumpEntry{}
		d.resources[kind][name] = entry
	}
	return entry
}

// addActive adds a resource in use. Without a name, that in its text counts.
func (d *Dump) addActive(kind resource.Kind, name string, resource *dumpedResource, text json.RawMessage) {
	body, decodedName, err := decode(text)
	entry := d.entry(kind, cmp.Or(name, decodedName))
	entry.version, entry.body, entry.err = resource.Version, body, err
	if resource.Error != nil {
		entry.rejection = resource.Error.Details
	}
}

// lenientJSON skips fields of newer Envoys that this program does not support.
var lenientJSON = protojson.UnmarshalOptions{DiscardUnknown: true, AllowPartial: true}

// decode returns a resource of a dump and its name, also if the rest cannot be decoded.
func decode(text json.RawMessage) (message proto.Message, name string, err error) {
	var named struct {
		Name    string `json:"name"`
		Cluster string `json:"cluster_name"` // of endpoints
	}
	_ = json.Unmarshal(text, &named) // the next call reports invalid JSON
	body := &anypb.Any{}
	if err = lenientJSON.Unmarshal(text, body); err == nil {
		message, err = body.UnmarshalNew()
	}
	return message, named.Name + named.Cluster, err
}

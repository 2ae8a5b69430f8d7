package debug

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"strconv"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/xds"
)

// Connection names a stream as istiod does.
func Connection(c *xds.ClientStatus) string {
	return c.Node.GetId() + "-" + strconv.FormatUint(c.StreamID, 10)
}

// Find returns the client that is meant by id, as istiod finds it: by a part of the name of its connection.
func Find(clients Clients, id string) (c xds.ClientStatus, ok bool) {
	for c := range Who(clients) {
		if id != "" && strings.Contains(Connection(&c), id) {
			return c, true
		}
	}
	return xds.ClientStatus{}, false
}

// section is a part of a config_dump, with a list of the resources of one type.
type section struct {
	part      proto.Message // without resources
	url       string        // of the type; empty for none
	list      protoreflect.Name
	versioned bool // the part has the version of the type
	// entry is an element of the list. It has the encoded resource unless that is secret.
	entry func(e *xds.Entry, body *anypb.Any) (proto.Message, error)
}

func sections(served []xds.Served, endpoints bool) ([]section, error) {
	hosts, err := virtualHosts(served)
	if err != nil {
		return nil, err
	}
	type body = *anypb.Any
	type message = proto.Message
	all := []section{
		{part: &adminv3.BootstrapConfigDump{}},
		{&adminv3.ClustersConfigDump{}, xds.ClusterURL, "dynamic_active_clusters", true, func(e *xds.Entry, b body) (message, error) {
			return &adminv3.ClustersConfigDump_DynamicCluster{VersionInfo: e.Version, Cluster: b}, nil
		}},
		{&adminv3.ListenersConfigDump{}, xds.ListenerURL, "dynamic_listeners", true, func(e *xds.Entry, b body) (message, error) {
			state := &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: e.Version, Listener: b}
			return &adminv3.ListenersConfigDump_DynamicListener{Name: e.Name, ActiveState: state}, nil
		}},
		{part: &adminv3.ScopedRoutesConfigDump{}},
		{&adminv3.RoutesConfigDump{}, xds.RouteURL, "dynamic_route_configs", false, func(e *xds.Entry, b body) (message, error) {
			routes, err := withHosts(b, hosts[e.Name])
			return &adminv3.RoutesConfigDump_DynamicRouteConfig{VersionInfo: e.Version, RouteConfig: routes}, err
		}},
		{&adminv3.SecretsConfigDump{}, xds.SecretURL, "dynamic_active_secrets", false, func(e *xds.Entry, _ body) (message, error) {
			return &adminv3.SecretsConfigDump_DynamicSecret{Name: e.Name, VersionInfo: e.Version}, nil
		}},
		{&adminv3.EcdsConfigDump{}, xds.ExtURL, "ecds_filters", false, func(e *xds.Entry, b body) (message, error) {
			return &adminv3.EcdsConfigDump_EcdsFilterConfig{VersionInfo: e.Version, EcdsFilter: b}, nil
		}},
		{&adminv3.EndpointsConfigDump{}, xds.EndpointURL, "dynamic_endpoint_configs", false, func(e *xds.Entry, b body) (message, error) {
			return &adminv3.EndpointsConfigDump_DynamicEndpointConfig{VersionInfo: e.Version, EndpointConfig: b}, nil
		}},
	}
	if !endpoints {
		all = all[:len(all)-1]
	}
	for _, s := range all {
		for _, of := range served {
			if s.versioned && of.TypeURL == s.url && len(of.Entries) > 0 {
				m := s.part.ProtoReflect()
				m.Set(m.Descriptor().Fields().ByName("version_info"), protoreflect.ValueOfString(of.Version))
			}
		}
	}
	return all, nil
}

// entries are the elements of the list.
func (s *section) entries(served []xds.Served) iter.Seq2[proto.Message, error] {
	return func(yield func(proto.Message, error) bool) {
		for _, of := range served {
			if of.TypeURL != s.url || s.entry == nil {
				continue
			}
			for _, e := range of.Entries {
				body := &anypb.Any{}
				err := proto.Unmarshal(e.Content(), body)
				var m proto.Message
				if err == nil {
					m, err = s.entry(e, body)
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
		}
	}
}

// Dump returns what a client is served of Envoy's types, in the form of an Envoy's config_dump. Endpoints are left out unless they are
// asked for, as Envoy does it. Virtual hosts that are asked for one by one stand in their routes. Of secrets there are names and versions.
func Dump(served []xds.Served, endpoints bool) (*adminv3.ConfigDump, error) {
	all, err := sections(served, endpoints)
	if err != nil {
		return nil, err
	}
	dump := &adminv3.ConfigDump{}
	for _, s := range all {
		m := s.part.ProtoReflect()
		for e, err := range s.entries(served) {
			if err != nil {
				return nil, err
			}
			m.Mutable(m.Descriptor().Fields().ByName(s.list)).List().Append(protoreflect.ValueOfMessage(e.ProtoReflect()))
		}
		body, err := anypb.New(s.part)
		if err != nil {
			return nil, err
		}
		dump.Configs = append(dump.Configs, body)
	}
	return dump, nil
}

// WriteDump writes a Dump in JSON, one resource at a time, so that a large one is never held as text. Lines but the first begin with
// indent.
func WriteDump(w io.Writer, indent string, served []xds.Served, endpoints bool) error {
	all, err := sections(served, endpoints)
	if err != nil {
		return err
	}
	line := "\n" + indent
	before := "{" + line + `  "configs": [`
	for _, s := range all {
		m := s.part.ProtoReflect()
		before += line + `    {` + line + `      "@type": "type.googleapis.com/` + string(m.Descriptor().FullName()) + `"`
		if s.versioned {
			if version := m.Get(m.Descriptor().Fields().ByName("version_info")).String(); version != "" {
				before += "," + line + `      "version_info": ` + strconv.Quote(version)
			}
		}
		after := ""
		for e, err := range s.entries(served) {
			if err != nil {
				return err
			}
			text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(e)
			if err != nil {
				return err
			}
			if after == "" {
				before += "," + line + `      "` + string(s.list) + `": [`
			}
			element := bytes.NewBufferString(before + after + line + "        ")
			if err := json.Indent(element, text, indent+"        ", "  "); err != nil {
				return err
			}
			if _, err := w.Write(element.Bytes()); err != nil {
				return err // who asked has gone
			}
			before, after = "", ","
		}
		if after != "" {
			before = line + "      ]"
		}
		before += line + "    },"
	}
	_, err = io.WriteString(w, strings.TrimSuffix(before, ",")+line+"  ]"+line+"}")
	return err
}

// unpack decodes what is served.
func unpack(e *xds.Entry, m proto.Message) error {
	body := &anypb.Any{}
	if err := proto.Unmarshal(e.Content(), body); err != nil {
		return err
	}
	return body.UnmarshalTo(m)
}

// virtualHosts returns those that are served one by one, by the name of their routes.
func virtualHosts(served []xds.Served) (map[string][]*routev3.VirtualHost, error) {
	all := make(map[string][]*routev3.VirtualHost)
	for _, of := range served {
		if of.TypeURL != xds.VHostURL {
			continue
		}
		for _, e := range of.Entries {
			host := &routev3.VirtualHost{}
			if err := unpack(e, host); err != nil {
				return nil, err
			}
			route, _, _ := strings.Cut(e.Name, "/") // so VHDS has them named
			all[route] = append(all[route], host)
		}
	}
	return all, nil
}

// withHosts adds virtual hosts to encoded routes.
func withHosts(body *anypb.Any, hosts []*routev3.VirtualHost) (*anypb.Any, error) {
	if len(hosts) == 0 {
		return body, nil
	}
	routes := &routev3.RouteConfiguration{}
	if err := body.UnmarshalTo(routes); err != nil {
		return nil, err
	}
	routes.VirtualHosts = append(routes.VirtualHosts, hosts...)
	return anypb.New(routes)
}

// Clusters returns the endpoints that a client is served, in the form of an Envoy's /clusters?format=json, which istioctl proxy-config
// endpoint reads.
func Clusters(served []xds.Served) (*adminv3.Clusters, error) {
	all := &adminv3.Clusters{}
	for _, of := range served {
		if of.TypeURL != xds.EndpointURL {
			continue
		}
		for _, e := range of.Entries {
			members := &endpointv3.ClusterLoadAssignment{}
			if err := unpack(e, members); err != nil {
				return nil, err
			}
			name, _, _ := strings.Cut(members.GetClusterName(), ";") // what follows tells health checks apart
			all.ClusterStatuses = append(all.ClusterStatuses, &adminv3.ClusterStatus{
				Name: name, AddedViaApi: true,
				HostStatuses: hosts(members),
			})
		}
	}
	return all, nil
}

func hosts(members *endpointv3.ClusterLoadAssignment) (all []*adminv3.HostStatus) {
	for _, l := range members.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			health := e.GetHealthStatus()
			if health == corev3.HealthStatus_UNKNOWN {
				health = corev3.HealthStatus_HEALTHY // so Envoy takes it
			}
			all = append(all, &adminv3.HostStatus{
				Address: e.GetEndpoint().GetAddress(), HealthStatus: &adminv3.HostHealthStatus{EdsHealthStatus: health},
				Weight: max(e.GetLoadBalancingWeight().GetValue(), 1), Locality: l.GetLocality(), Priority: l.GetPriority(),
			})
		}
	}
	return all
}

package debug

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/xds"
)

// Connection returns the name of a client's stream, in the format of istiod.
func Connection(client *xds.ClientStatus) string {
	return client.Node.GetId() + "-" + strconv.FormatUint(client.StreamID, 10)
}

// Find returns the first client with a text in the name of its connection, as istiod does.
func Find(clients Clients, part string) (xds.ClientStatus, bool) {
	for client := range Subscribers(clients) {
		if part != "" && strings.Contains(Connection(&client), part) {
			return client, true
		}
	}
	return xds.ClientStatus{}, false
}

// section describes a part of a config_dump, which lists the resources of a type.
type section struct {
	part    proto.Message     // the message, without its list
	typeURL string            // empty for a part without resources
	list    protoreflect.Name // the field of the part that has the list
	body    protoreflect.Name // the field of an element, or of its active_state, that has the resource
}

// sections returns the sections of a config_dump in Envoy's order. Of secrets, they have only the names and versions.
func sections(served []xds.Served, endpoints bool) []section {
	result := []section{
		{part: &adminv3.BootstrapConfigDump{}},
		{&adminv3.ClustersConfigDump{}, xds.ClusterURL, "dynamic_active_clusters", "cluster"},
		{&adminv3.ListenersConfigDump{}, xds.ListenerURL, "dynamic_listeners", "listener"},
		{part: &adminv3.ScopedRoutesConfigDump{}},
		{&adminv3.RoutesConfigDump{}, xds.RouteURL, "dynamic_route_configs", "route_config"},
		{&adminv3.SecretsConfigDump{}, xds.SecretURL, "dynamic_active_secrets", ""},
		{&adminv3.EcdsConfigDump{}, xds.ExtURL, "ecds_filters", "ecds_filter"},
		{&adminv3.EndpointsConfigDump{}, xds.EndpointURL, "dynamic_endpoint_configs", "endpoint_config"},
	}
	if !endpoints {
		result = result[:len(result)-1]
	}
	for _, section := range result {
		for _, resources := range served {
			if resources.TypeURL == section.typeURL && len(resources.Entries) > 0 {
				setField(section.part.ProtoReflect(), "version_info", protoreflect.ValueOfString(resources.Version))
			}
		}
	}
	return result
}

// setField sets a field of a message if the message has it.
func setField(message protoreflect.Message, name protoreflect.Name, value protoreflect.Value) {
	if field := message.Descriptor().Fields().ByName(name); field != nil {
		message.Set(field, value)
	}
}

// elements yields the elements of the section's list. It adds virtual hosts that were sent by VHDS to their routes.
func (s *section) elements(served []xds.Served) iter.Seq2[protoreflect.Message, error] {
	return func(yield func(protoreflect.Message, error) bool) {
		hosts, err := virtualHosts(served)
		for _, resources := range served {
			if s.list == "" || resources.TypeURL != s.typeURL {
				continue
			}
			for _, entry := range resources.Entries {
				body := &anypb.Any{}
				if err == nil {
					err = proto.Unmarshal(entry.Content(), body)
				}
				if err == nil && s.typeURL == xds.RouteURL {
					body, err = withHosts(body, hosts[entry.Name])
				}
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(s.element(entry, body), nil) {
					return
				}
			}
		}
	}
}

// element returns an element of the section's list.
func (s *section) element(entry *xds.Entry, body *anypb.Any) protoreflect.Message {
	part := s.part.ProtoReflect()
	element := part.NewField(part.Descriptor().Fields().ByName(s.list)).List().NewElement().Message()
	state := element
	if field := element.Descriptor().Fields().ByName("active_state"); field != nil {
		state = element.Mutable(field).Message()
	}
	setField(element, "name", protoreflect.ValueOfString(entry.Name))
	setField(state, "version_info", protoreflect.ValueOfString(entry.Version))
	setField(state, s.body, protoreflect.ValueOfMessage(body.ProtoReflect()))
	return element
}

// dumpParts returns the parts of the config_dump of a client, without endpoints.
func dumpParts(served []xds.Served) (parts []*anypb.Any, err error) {
	for _, section := range sections(served, false) {
		part := section.part.ProtoReflect()
		for element, err := range section.elements(served) {
			if err != nil {
				return nil, err
			}
			list := part.Mutable(part.Descriptor().Fields().ByName(section.list)).List()
			list.Append(protoreflect.ValueOfMessage(element))
		}
		body, err := anypb.New(section.part)
		if err != nil {
			return nil, err
		}
		parts = append(parts, body)
	}
	return parts, nil
}

// WriteDump writes the resources that were sent to a client as JSON, in the form of an Envoy's config_dump. It writes
// one resource at a time, since the text of the whole can be very large.
func WriteDump(writer io.Writer, served []xds.Served, endpoints bool) error {
	pending := bytes.NewBufferString("{\n  \"configs\": [")
	for number, section := range sections(served, endpoints) {
		if number > 0 {
			pending.WriteString(",")
		}
		part := section.part.ProtoReflect().Descriptor()
		fmt.Fprintf(pending, "\n    {\n      \"@type\": \"type.googleapis.com/%s\"", part.FullName())
		if version := part.Fields().ByName("version_info"); version != nil {
			fmt.Fprintf(pending, ",\n      \"version_info\": %q", section.part.ProtoReflect().Get(version).String())
		}
		separator := fmt.Sprintf(",\n      %q: [", section.list)
		for element, err := range section.elements(served) {
			var text []byte
			if err == nil {
				text, err = protojson.MarshalOptions{UseProtoNames: true}.Marshal(element.Interface())
			}
			if err != nil {
				return err
			}
			pending.WriteString(separator + "\n        ")
			if err := json.Indent(pending, text, "        ", "  "); err != nil {
				return err
			}
			if _, err := pending.WriteTo(writer); err != nil {
				return err // the reader closed the connection
			}
			separator = ","
		}
		if separator == "," {
			pending.WriteString("\n      ]")
		}
		pending.WriteString("\n    }")
	}
	_, err := fmt.Fprintf(writer, "%s\n  ]\n}", pending)
	return err
}

// virtualHosts returns the virtual hosts that were sent by VHDS, by the name of their routes.
func virtualHosts(served []xds.Served) (map[string][]*routev3.VirtualHost, error) {
	result := make(map[string][]*routev3.VirtualHost)
	for _, resources := range served {
		if resources.TypeURL != xds.VHostURL {
			continue
		}
		for _, entry := range resources.Entries {
			body, host := &anypb.Any{}, &routev3.VirtualHost{}
			err := proto.Unmarshal(entry.Content(), body)
			if err == nil {
				err = body.UnmarshalTo(host)
			}
			if err != nil {
				return nil, err
			}
			route, _, _ := strings.Cut(entry.Name, "/") // VHDS names them ROUTE/DOMAIN
			result[route] = append(result[route], host)
		}
	}
	return result, nil
}

// withHosts adds virtual hosts to an encoded RouteConfiguration.
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

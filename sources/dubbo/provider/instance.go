package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
)

// Instance is an instance of an application, as Dubbo 3 registers it. Its revision identifies the metadata that lists
// its services.
type Instance struct {
	Application string
	Host        string
	Port        int
	Revision    string
	Endpoints   []Endpoint // one for each protocol
	Metadata    map[string]string
	Timestamp   int64 // in milliseconds
	Off         bool  // it is to have no calls
	Unverified  bool  // see Provider
	// Failing says why the registry wants no calls to it. Empty if it is healthy.
	Failing string

	// Service is the instance's own metadata service; nil if it names none.
	Service *MetadataService
}

// Endpoint is a port of an instance.
type Endpoint struct {
	Protocol string
	Port     int
}

// MetadataService is the service that an instance offers for its metadata.
type MetadataService struct {
	Protocol string
	Port     int
	Version  string // 1.0.0, or 2.0.0 for that of Triple
	V2       bool   // it announces MetadataServiceV2
}

// The keys of an instance's metadata.
const (
	keyEndpoints = "dubbo.endpoints"
	keyRevision  = "dubbo.metadata.revision"
	keyService   = "dubbo.metadata-service.url-params"
)

// InstanceTag is an example of a tag that makes OfInstances true.
const InstanceTag = keyRevision + "=…"

// OfInstances reports whether a text key=value is metadata that only Dubbo's instances have.
func OfInstances(text string) bool {
	key, value, _ := strings.Cut(text, "=")
	return (key == keyEndpoints || key == keyRevision) && value != ""
}

// ParseInstance parses the content of a node below an application: JSON as Curator writes it. ok is false for an
// instance that is not Dubbo's; Spring Cloud uses the same place.
func ParseInstance(application string, content []byte) (i Instance, ok bool, err error) {
	if len(content) > maxText {
		return Instance{}, false, fmt.Errorf("instance of %d bytes (limit %d)", len(content), maxText)
	}
	var node struct {
		Name    string          `json:"name"`
		Address string          `json:"address"`
		Port    json.RawMessage `json:"port"`
		Payload struct {
			Metadata map[string]json.RawMessage `json:"metadata"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(content, &node); err != nil {
		return Instance{}, false, fmt.Errorf("instance: %w", err)
	}
	metadata := make(map[string]string, len(node.Payload.Metadata))
	for key, value := range node.Payload.Metadata {
		metadata[key] = text(value)
	}
	return NewInstance(cmp.Or(application, node.Name), node.Address, number(node.Port), metadata)
}

// NewInstance returns the instance of an application at an address, given its metadata. ok is false if these are not
// Dubbo's.
func NewInstance(application, host string, port int, metadata map[string]string) (i Instance, ok bool, err error) {
	if metadata[keyEndpoints] == "" && metadata[keyRevision] == "" {
		return Instance{}, false, nil
	}
	i = Instance{
		Application: application, Host: names.Host(host), Port: port, Revision: metadata[keyRevision],
		Metadata: metadata, Timestamp: milliseconds(metadata["timestamp"]),
	}
	if host == "" {
		return i, true, errors.New("it has no address")
	}
	// With a revision, an error here or below is none: there are other sources of ports and metadata.
	if i.Endpoints, err = parseEndpoints(metadata[keyEndpoints]); err != nil && i.Revision == "" {
		return i, true, fmt.Errorf("%s: want a list in JSON of protocols and ports, got %s", keyEndpoints,
			Shorten(metadata[keyEndpoints]))
	}
	if s := metadata[keyService]; s != "" {
		i.Service = parseService(s)
	}
	return i, true, nil
}

// parseEndpoints parses a list of protocols and ports in JSON. It skips elements that it cannot read.
func parseEndpoints(list string) (endpoints []Endpoint, err error) {
	var raws []json.RawMessage
	if list == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(list), &raws); err != nil {
		return nil, err
	}
	for _, element := range raws {
		var endpoint struct{ Protocol, Port json.RawMessage }
		if json.Unmarshal(element, &endpoint) != nil {
			continue
		}
		if port := number(endpoint.Port); port > 0 && port <= 65535 {
			endpoints = append(endpoints, Endpoint{strings.ToLower(text(endpoint.Protocol)), port})
		}
	}
	return endpoints, nil
}

// parseService parses parameters in JSON. dubbo-go writes one object, and versions for Spring Cloud one for each
// protocol.
func parseService(params string) *MetadataService {
	raws := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(params), &raws) != nil {
		return nil
	}
	metadataService := &MetadataService{
		Protocol: strings.ToLower(text(raws["protocol"])), Port: number(raws["port"]),
		Version: text(raws["version"]),
	}
	if metadataService.Protocol == "" {
		for _, protocol := range slices.Sorted(maps.Keys(raws)) {
			var inner map[string]json.RawMessage
			if json.Unmarshal(raws[protocol], &inner) == nil && number(inner["port"]) > 0 {
				return &MetadataService{
					Protocol: strings.ToLower(protocol), Port: number(inner["port"]),
					Version: text(inner["version"]),
				}
			}
		}
		return nil
	}
	if metadataService.Port <= 0 || metadataService.Port > 65535 {
		return nil
	}
	metadataService.V2 = metadataService.Version == "2.0.0"
	return metadataService
}

// text decodes a JSON string; anything else stays as it is written.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// number decodes a whole number in JSON, or in a JSON string, also with a fraction of zero; 0 if it is neither.
func number(raw json.RawMessage) int {
	n, err := strconv.ParseFloat(text(raw), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > math.MaxInt32 {
		return 0
	}
	return int(n)
}

// portOf returns the port of a protocol, or 0.
func (i Instance) portOf(protocol string) int {
	for _, e := range i.Endpoints {
		if e.Protocol == protocol {
			return e.Port
		}
	}
	return 0
}

// Offers returns the providers of an instance with this metadata (its host, with the ports of the services), and why
// other services in the metadata cannot be called.
func (i Instance) Offers(m Metadata) (providers []Provider, unreadable []error) {
	for _, service := range m.Services {
		provider := Provider{
			ID: newID(service.Name, service.Group, service.Version), Protocol: service.Protocol, Host: i.Host,
			Port: cmp.Or(service.Port, i.portOf(service.Protocol), i.Port), Path: cmp.Or(service.Path, service.Name),
			Application: i.Application, Timestamp: i.Timestamp, Params: service.Params, Unverified: i.Unverified,
			SwitchedOff: i.Off,
		}
		switch err := provider.check(); {
		case internal(provider.Interface):
		case err != nil:
			unreadable = append(unreadable, err)
		default:
			providers = append(providers, provider)
		}
	}
	return providers, unreadable
}

// Guess returns the providers of an instance if only the interfaces mapped to its application are known.
func (i Instance) Guess(interfaces []string) []Provider {
	var providers []Provider
	seen := map[Endpoint]bool{}
	for _, endpoint := range i.Endpoints {
		if seen[endpoint] {
			continue
		}
		seen[endpoint] = true
		for _, name := range interfaces {
			provider := Provider{
				ID: ID{Interface: name}, Protocol: endpoint.Protocol, Host: i.Host, Port: endpoint.Port, Path: name,
				Application: i.Application, Timestamp: i.Timestamp, Unverified: i.Unverified, SwitchedOff: i.Off,
			}
			if !internal(name) && provider.check() == nil {
				providers = append(providers, provider)
			}
		}
	}
	return providers
}

// internal reports whether an interface is one of Dubbo's own, which every application has and no mesh needs.
func internal(name string) bool {
	switch name {
	case "org.apache.dubbo.metadata.MetadataService", "org.apache.dubbo.metadata.MetadataServiceV2":
		return true
	}
	return false
}

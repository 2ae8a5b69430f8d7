package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Metadata says what services the instances of an application with a revision have.
type Metadata struct {
	Application string
	Revision    string
	Services    []Service
}

// Size is about how many bytes it takes in memory.
func (m Metadata) Size() int {
	const perService, perParam = 200, 64 // besides their texts
	n := len(m.Application) + len(m.Revision)
	for _, s := range m.Services {
		n += perService + len(s.Name) + len(s.Group) + len(s.Version) + len(s.Protocol) + len(s.Path)
		for key, value := range s.Params {
			n += perParam + len(key) + len(value)
		}
	}
	return n
}

// Service is one of an instance's.
type Service struct {
	Name     string            `json:"name"`
	Group    string            `json:"group"`
	Version  string            `json:"version"`
	Protocol string            `json:"protocol"`
	Port     int               `json:"port"`
	Path     string            `json:"path"`
	Params   map[string]string `json:"params"`
}

// ErrNoMetadata is said of a document that is there and empty, as an instance answers that is asked for a revision that it does
// not have.
var ErrNoMetadata = errors.New("no metadata of this revision")

// maxPassedOver is how many services that cannot be read are named: a few bytes of metadata are enough for one.
const maxPassedOver = 10

// passedOver are the services of metadata that cannot be read.
type passedOver struct {
	first []string
	more  int
}

func (o *passedOver) add(text func() string) {
	if len(o.first) == maxPassedOver {
		o.more++
		return
	}
	o.first = append(o.first, text())
}

func (o *passedOver) texts() []string {
	if o.more == 0 {
		return o.first
	}
	return append(o.first, fmt.Sprintf("%d more services cannot be read", o.more))
}

// nameOf says of what interface a service is that cannot be read, as far as it says so.
func nameOf(service json.RawMessage) string {
	var of struct{ Name json.RawMessage }
	if json.Unmarshal(service, &of) != nil || of.Name == nil {
		return ""
	}
	return " of " + Shorten(text(of.Name))
}

// ParseMetadata reads MetadataInfo in JSON, as it is in a metadata report and as instances answer. A service that cannot be
// read is left out and named among skipped.
func ParseMetadata(content []byte) (m Metadata, skipped []string, err error) {
	if len(content) > maxText {
		return Metadata{}, nil, fmt.Errorf("metadata of %d bytes: more than %d are not read", len(content), maxText)
	}
	var doc *struct {
		App      string                     `json:"app"`
		Revision string                     `json:"revision"`
		Version  string                     `json:"version"` // where Triple has the revision
		Services map[string]json.RawMessage `json:"services"`
	}
	if err := json.Unmarshal(content, &doc); err != nil {
		return Metadata{}, nil, fmt.Errorf("metadata: %w", err)
	}
	if doc == nil {
		return Metadata{}, nil, ErrNoMetadata
	}
	m = Metadata{Application: doc.App, Revision: cmp.Or(doc.Revision, doc.Version)}
	var out passedOver
	for _, key := range slices.Sorted(maps.Keys(doc.Services)) {
		s, err := parseServiceInfo(key, doc.Services[key])
		if err != nil {
			out.add(func() string { return fmt.Sprintf("service %s%s: %v", Shorten(key), nameOf(doc.Services[key]), err) })
			continue
		}
		m.Services = append(m.Services, s)
	}
	return m, out.texts(), nil
}

func parseServiceInfo(key string, raw json.RawMessage) (s Service, err error) {
	var loose struct {
		Name, Group, Version, Protocol, Path string
		Port                                 json.RawMessage
		Params                               map[string]json.RawMessage
	}
	if err := json.Unmarshal(raw, &loose); err != nil {
		return Service{}, err
	}
	s = Service{
		Name: loose.Name, Group: loose.Group, Version: loose.Version, Protocol: loose.Protocol, Port: number(loose.Port),
		Path: loose.Path, Params: make(map[string]string, len(loose.Params)),
	}
	for k, v := range loose.Params {
		s.Params[k] = text(v)
	}
	s.complete(key)
	if s.Name == "" || s.Protocol == "" {
		return Service{}, errors.New("it has no name and protocol")
	}
	return s, nil
}

// complete takes what the fields of a service do not say from its key, group/interface:version:protocol, and its parameters.
func (s *Service) complete(key string) {
	group, rest, ok := strings.Cut(key, "/")
	if !ok {
		group, rest = "", key
	}
	parts := strings.Split(rest, ":")
	s.Name = cmp.Or(s.Name, s.Params["interface"], parts[0])
	s.Group = cmp.Or(s.Group, s.Params["group"], group)
	if len(parts) > 1 {
		s.Protocol = cmp.Or(s.Protocol, parts[len(parts)-1])
	}
	s.Version = cmp.Or(s.Version, s.Params["version"])
	if len(parts) > 2 {
		s.Version = cmp.Or(s.Version, parts[1])
	}
	s.Protocol = strings.ToLower(s.Protocol)
}

// FromURLs makes metadata of the URLs that a provider's metadata service lists, which do not say of which revision they are. Those that
// cannot be read are named among skipped.
func FromURLs(application string, urls []string) (m Metadata, skipped []string) {
	m = Metadata{Application: application}
	var out passedOver
	for _, text := range urls {
		u, err := ParseURL(text)
		var p Provider
		ok := false
		if err == nil {
			p, ok, err = u.Provider()
		}
		if err != nil {
			out.add(err.Error)
			continue
		}
		if ok {
			m.Services = append(m.Services, Service{
				Name: p.Interface, Group: p.Group, Version: p.Version, Protocol: p.Protocol, Port: p.Port, Path: p.Path, Params: p.Params,
			})
		}
	}
	return m, out.texts()
}

package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tributary/internal/words"
)

// Metadata lists the services of the instances of an application with a revision.
type Metadata struct {
	Application string
	Revision    string
	Services    []Service
}

// Size is roughly its memory in bytes.
func (m Metadata) Size() int {
	const perService, perParam = 200, 64 // without their texts
	n := len(m.Application) + len(m.Revision)
	for _, s := range m.Services {
		n += perService + len(s.Name) + len(s.Group) + len(s.Version) + len(s.Protocol) + len(s.Path)
		for key, value := range s.Params {
			n += perParam + len(key) + len(value)
		}
	}
	return n
}

// Service is a service of an instance.
type Service struct {
	Name     string            `json:"name"`
	Group    string            `json:"group"`
	Version  string            `json:"version"`
	Protocol string            `json:"protocol"`
	Port     int               `json:"port"`
	Path     string            `json:"path"`
	Params   map[string]string `json:"params"`
}

// ErrNoMetadata is the error of an empty document. An instance without the revision answers with one.
var ErrNoMetadata = errors.New("no metadata of this revision")

// maxUnreadable bounds the unreadable services that are named: a few bytes of metadata are enough for one.
const maxUnreadable = 10

// unreadableServices collects the services of metadata that cannot be read.
type unreadableServices struct {
	first        []string
	furtherCount int
}

func (u *unreadableServices) add(text func() string) {
	if len(u.first) == maxUnreadable {
		u.furtherCount++
		return
	}
	u.first = append(u.first, text())
}

func (u *unreadableServices) texts() []string {
	if u.furtherCount == 0 {
		return u.first
	}
	return append(u.first, words.Count(u.furtherCount, "more service", "more services")+" cannot be read")
}

// nameOf names the interface of an unreadable service, if it has one.
func nameOf(service json.RawMessage) string {
	var document struct{ Name json.RawMessage }
	if json.Unmarshal(service, &document) != nil || document.Name == nil {
		return ""
	}
	return " of " + Shorten(text(document.Name))
}

// ParseMetadata parses MetadataInfo in JSON, as in a metadata report and in answers of instances. skipped names the
// services that cannot be read.
func ParseMetadata(content []byte) (metadata Metadata, skipped []string, err error) {
	if len(content) > maxText {
		return Metadata{}, nil, fmt.Errorf("metadata of %d bytes (limit %d)", len(content), maxText)
	}
	var document *struct {
		App      string                     `json:"app"`
		Revision string                     `json:"revision"`
		Version  string                     `json:"version"` // the revision, in Triple
		Services map[string]json.RawMessage `json:"services"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return Metadata{}, nil, fmt.Errorf("metadata: %w", err)
	}
	if document == nil {
		return Metadata{}, nil, ErrNoMetadata
	}
	metadata = Metadata{Application: document.App, Revision: cmp.Or(document.Revision, document.Version)}
	var unreadable unreadableServices
	for _, key := range slices.Sorted(maps.Keys(document.Services)) {
		service, err := parseServiceInfo(key, document.Services[key])
		if err != nil {
			unreadable.add(func() string {
				return fmt.Sprintf("service %s%s: %v", Shorten(key), nameOf(document.Services[key]), err)
			})
			continue
		}
		metadata.Services = append(metadata.Services, service)
	}
	return metadata, unreadable.texts(), nil
}

func parseServiceInfo(key string, raw json.RawMessage) (service Service, err error) {
	var loose struct {
		Name, Group, Version, Protocol, Path string
		Port                                 json.RawMessage
		Params                               map[string]json.RawMessage
	}
	if err := json.Unmarshal(raw, &loose); err != nil {
		return Service{}, err
	}
	service = Service{
		Name: loose.Name, Group: loose.Group, Version: loose.Version, Protocol: loose.Protocol, Port: number(loose.Port),
		Path: loose.Path, Params: make(map[string]string, len(loose.Params)),
	}
	for k, v := range loose.Params {
		service.Params[k] = text(v)
	}
	service.complete(key)
	if service.Name == "" || service.Protocol == "" {
		return Service{}, errors.New("it has no name and protocol")
	}
	return service, nil
}

// complete fills empty fields of a service from its parameters and its key, group/interface:version:protocol.
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

// FromURLs makes metadata of the URLs in the answer of a metadata service, which name no revision. skipped names those
// that cannot be read.
func FromURLs(application string, urls []string) (metadata Metadata, skipped []string) {
	metadata = Metadata{Application: application}
	var unreadable unreadableServices
	for _, text := range urls {
		url, err := ParseURL(text)
		var parsed Provider
		ok := false
		if err == nil {
			parsed, ok, err = url.Provider()
		}
		if err != nil {
			unreadable.add(err.Error)
			continue
		}
		if ok {
			metadata.Services = append(metadata.Services, Service{
				Name: parsed.Interface, Group: parsed.Group, Version: parsed.Version, Protocol: parsed.Protocol, Port: parsed.Port,
				Path:   parsed.Path,
				Params: parsed.Params,
			})
		}
	}
	return metadata, unreadable.texts()
}

package backend

import (
	"fmt"
	"strings"
)

// The limits of a mapping. A larger one is an error as a whole: the earlier mapping stays.
const (
	MaxMapped  = 20_000   // interfaces
	maxMapping = 64 << 20 // bytes in memory
)

// costOfName is the memory of an application's name in addition to its bytes.
const costOfName = 64

// Mapping collects the interfaces of each application.
type Mapping struct {
	interfaces   map[string][]string // by application
	count, bytes int                 // of the added interfaces
}

// CheckSize returns an error if a mapping has too many interfaces. place is its place in the registry.
func CheckSize(interfaces int, place string) error {
	if interfaces > MaxMapped {
		return fmt.Errorf("%s has at least %d interfaces (limit %d, MaxMapped): delete those without a provider", place,
			interfaces, MaxMapped)
	}
	return nil
}

// Add adds an interface with the names of its applications, separated by commas as Dubbo writes them.
func (m *Mapping) Add(place, iface, applications string) error {
	m.count++
	if err := CheckSize(m.count, place); err != nil {
		return err
	}
	if m.bytes += len(iface) + len(applications) + costOfName*(1+strings.Count(applications, ",")); m.bytes > maxMapping {
		return fmt.Errorf("%s: over the limit of %d bytes (maxMapping) at interface %.100q: delete those without a provider",
			place, maxMapping, iface)
	}
	if m.interfaces == nil {
		m.interfaces = map[string][]string{}
	}
	for app := range strings.SplitSeq(applications, ",") {
		if app = strings.TrimSpace(app); app != "" {
			m.interfaces[app] = append(m.interfaces[app], iface)
		}
	}
	return nil
}

// ByApplication returns the interfaces of each application.
func (m *Mapping) ByApplication() map[string][]string { return m.interfaces }

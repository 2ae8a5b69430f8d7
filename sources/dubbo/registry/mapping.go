package registry

import (
	"fmt"
	"strings"
)

// What a registry may say in its mapping. What is more is an error in place of a part of it, so that what was read before stays.
const (
	MaxMapped  = 20_000   // interfaces
	maxMapping = 64 << 20 // bytes in memory
)

// costOfName is what the name of an application takes besides its bytes.
const costOfName = 64

// Mapping is the interfaces that applications are said to serve.
type Mapping struct {
	of                map[string][]string
	interfaces, bytes int
}

// Fits says that there are so many interfaces, of which an error says that they are too many, at that place of the registry.
func Fits(interfaces int, at string) error {
	if interfaces > MaxMapped {
		return fmt.Errorf("%s has %d interfaces or more, and of more than %d (MaxMapped) none are read: delete those that nobody serves", at,
			interfaces, MaxMapped)
	}
	return nil
}

// Add adds what Dubbo writes for an interface: the names of applications, with commas.
func (m *Mapping) Add(at, iface, applications string) error {
	m.interfaces++
	if err := Fits(m.interfaces, at); err != nil {
		return err
	}
	if m.bytes += len(iface) + len(applications) + costOfName*(1+strings.Count(applications, ",")); m.bytes > maxMapping {
		return fmt.Errorf("%s: with interface %.100q it takes more than %d bytes (maxMapping), and is not read: delete what nobody serves", at,
			iface, maxMapping)
	}
	if m.of == nil {
		m.of = map[string][]string{}
	}
	for app := range strings.SplitSeq(applications, ",") {
		if app = strings.TrimSpace(app); app != "" {
			m.of[app] = append(m.of[app], iface)
		}
	}
	return nil
}

// InterfacesOf returns the interfaces by application.
func (m *Mapping) InterfacesOf() map[string][]string { return m.of }

package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tributary/sources/guard"
	"tributary/sources/transform"
)

// Guard says which losses of a source are held. It is written as a mapping, or as off. Zero values and nil stand for
// the defaults of package guard.
type Guard struct {
	Off bool `json:"-"`
	// A loss is held if it is more than this share of the source's objects (of a kind, or in all) or endpoints, and more
	// than min. Default: 50%.
	Share Percent `json:"share,omitempty"`
	// How many objects or endpoints may always be lost, if that is not all of a kind. Default: 10.
	Min *int `json:"min,omitempty"`
	// Over how long losses are summed. Default: 1m.
	Window Duration `json:"window,omitempty"`
	// After how long a hold ends by itself. Default: never.
	HoldFor Duration `json:"holdFor,omitempty"`
}

// UnmarshalText reads the form that is not a mapping.
func (g *Guard) UnmarshalText(text []byte) error {
	if string(text) != "off" {
		return fmt.Errorf("want off or a mapping such as {share: 30%%}, got %q", text)
	}
	g.Off = true
	return nil
}

// Settings returns the settings as package guard takes them.
func (g Guard) Settings() (settings guard.Settings) {
	assign(&settings, g)
	return settings
}

func (d *decoder) checkGuard(settings Guard, key string) {
	if settings.Min != nil && *settings.Min < 0 {
		d.problem(key+".min", "want 0 or more, got %d", *settings.Min)
	}
	if settings.Window < 0 {
		d.problem(key+".window", "want more than 0, got %s", settings.Window)
	}
	if settings.HoldFor < 0 {
		d.problem(key+".holdFor", "want more than 0, got %s", settings.HoldFor)
	}
}

// Rules returns the transforms of the source; nil if it has none. The configuration has validated them.
func (s *Source) Rules() (*transform.Rules, error) {
	if s.Transform == nil {
		return nil, nil
	}
	return transform.New(*s.Transform)
}

func (d *decoder) checkTransform(s *Source, key string) {
	_, err := s.Rules()
	if mistake := new(transform.Mistake); errors.As(err, &mistake) {
		d.problem(key+"."+mistake.Key, "%v", mistake.Err)
	} else if err != nil {
		d.problem(key, "%v", err)
	}
}

// Percent is a share that is written like 50%.
type Percent float64

var errPercent = errors.New("want a share such as 50%")

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent > 0 && percent <= 100) {
		return fmt.Errorf("%w, got %q", errPercent, text)
	}
	*p = Percent(percent / 100)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (p Percent) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(p)*100, 'g', -1, 64) + "%"), nil
}

// Merge says which objects of a source merge with those of other sources. It is written as a mapping, or as endpoints.
type Merge struct {
	// ServiceEntries of a host are made one with those that the other sources with this setting have.
	Endpoints *Endpoints `json:"endpoints,omitempty"`
}

// Endpoints says how the endpoints of a source go into merged ServiceEntries.
type Endpoints struct {
	// Locality of all endpoints of the source, as region/zone/subzone. Default: that of each instance.
	Locality string `json:"locality,omitempty"`
	// Endpoints of the source are served only while the sources of a lower number list none for the service. Default: 0.
	Priority int `json:"priority,omitempty"`
}

const mergeEndpoints = "endpoints"

// UnmarshalText reads the form that is not a mapping.
func (m *Merge) UnmarshalText(text []byte) error {
	if string(text) != mergeEndpoints {
		return fmt.Errorf("want endpoints or a mapping such as {endpoints: {priority: 1}}, got %q", text)
	}
	m.Endpoints = &Endpoints{}
	return nil
}

func (d *decoder) checkMerge(merge Merge, key string) {
	if merge.Endpoints == nil {
		return
	}
	key += "." + mergeEndpoints
	if merge.Endpoints.Priority < 0 {
		d.problem(key+".priority", "want 0 or more, got %d", merge.Endpoints.Priority)
	}
	if locality := merge.Endpoints.Locality; locality != "" {
		if parts := strings.Split(locality, "/"); len(parts) > 3 || slices.Contains(parts, "") {
			d.problem(key+".locality", "want region, region/zone or region/zone/subzone, got %q", locality)
		}
	}
}

package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/xds"
)

// How the condition of something is painted. These are classes of the style sheet.
const (
	well  = "ok"
	warns = "warn"
	bad   = "bad"
	idle  = "idle"
)

// Flow is the picture: sources on the left, what is merged of them, and clients on the right. The table beside it has the same numbers.
type Flow struct {
	Height  int
	Middle  int // of the height
	Merged  []Line
	Sources []Station
	Clients []Station
}

// Line is a text in the picture.
type Line struct {
	Text, Class string
	Y           int
}

// Station is a source, or clients of one kind.
type Station struct {
	Name           string
	Short          string // the name as far as there is room
	Note           string // its condition
	ShortNote      string // the note as far as there is room
	Count          string // on the arrow
	Class          string
	Y              int    // of its middle
	Arrow          string // the path of the arrow
	LabelX, LabelY int
}

// What the picture is made of, in units of its view box, which is flowWidth wide.
const (
	flowWidth   = 960
	flowStep    = 64
	flowTop     = 40
	boxWidth    = 240
	mergeLeft   = 390
	mergeWidth  = 180
	maxStations = 7
	longestName = 26
)

// flowOf draws st. It shows the worst of many sources, and the others as one.
func flowOf(st *admin.Status, clients []xds.ClientStatus) Flow {
	f := Flow{Sources: stationsOfSources(st.Sources), Clients: stationsOfClients(clients)}
	f.Height = 2*flowTop + flowStep*(max(len(f.Sources), len(f.Clients), 1)-1) + 10
	f.Middle = f.Height / 2
	f.Merged = mergedOf(st, f.Middle)
	place(f.Sources, f.Middle, boxWidth, mergeLeft)
	place(f.Clients, f.Middle, mergeLeft+mergeWidth, flowWidth-boxWidth)
	for i := range f.Sources {
		f.Sources[i].Arrow = arrow(boxWidth, f.Sources[i].Y, mergeLeft, f.Middle)
	}
	for i := range f.Clients {
		f.Clients[i].Arrow = arrow(mergeLeft+mergeWidth, f.Middle, flowWidth-boxWidth, f.Clients[i].Y)
	}
	return f
}

// mergedOf says what is in the middle.
func mergedOf(st *admin.Status, middle int) []Line {
	lines := []Line{{Text: words.Count(st.Objects, "object", "objects"), Class: "main"}}
	if n := st.Conflicts.Shadowed; n > 0 {
		lines = append(lines, Line{Text: fmt.Sprintf("%d in several sources", n), Class: "note"})
	}
	if n := st.Quarantined; n > 0 {
		lines = append(lines, Line{Text: fmt.Sprintf("%d quarantined", n), Class: "note"})
	}
	const height = 20
	for i := range lines {
		lines[i].Y = middle + 5 + i*height - (len(lines)-1)*height/2
	}
	return lines
}

// place spreads stations over the height, and puts what is said of an arrow beside its station, from x1 to x2.
func place(all []Station, middle, x1, x2 int) {
	top := middle - flowStep*(len(all)-1)/2
	for i := range all {
		s := &all[i]
		s.Y = top + i*flowStep
		s.LabelX, s.LabelY = (x1+x2)/2, (s.Y+middle)/2-8
		s.Short, s.ShortNote = shorten(s.Name), shorten(s.Note)
	}
}

func arrow(x1, y1, x2, y2 int) string {
	bend := (x2 - x1) / 2
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2-7, y2)
}

func shorten(text string) string {
	if all := []rune(text); len(all) > longestName {
		return string(all[:longestName-1]) + "…"
	}
	return text
}

func stationsOfSources(all []admin.SourceState) (stations []Station) {
	for _, s := range all {
		stations = append(stations, Station{Name: s.Name, Note: noteOf(&s), Count: fmt.Sprint(s.Objects), Class: classOf(&s)})
	}
	if len(all) <= maxStations {
		return stations
	}
	slices.SortStableFunc(stations, func(a, b Station) int { return cmp.Compare(severity(a.Class), severity(b.Class)) })
	rest := Station{Class: stations[maxStations-1].Class, Note: "see the table"}
	objects := 0
	for _, s := range all {
		if !slices.ContainsFunc(stations[:maxStations-1], func(shown Station) bool { return shown.Name == s.Name }) {
			objects += s.Objects
		}
	}
	rest.Name, rest.Count = fmt.Sprintf("%d more sources", len(all)-maxStations+1), fmt.Sprint(objects)
	return append(stations[:maxStations-1:maxStations-1], rest)
}

func severity(class string) int { return slices.Index([]string{bad, warns, idle, well}, class) }

// noteOf is the condition of a source in a few words.
func noteOf(s *admin.SourceState) string {
	switch {
	case s.Hold != nil:
		return fmt.Sprintf("%s, holds back %d", s.State, s.Hold.Objects+s.Hold.Endpoints)
	case s.Stale:
		return s.State + ", stale"
	case !s.Synced:
		return s.State + ", not synced"
	case s.Quarantined > 0:
		return fmt.Sprintf("%s, %d quarantined", s.State, s.Quarantined)
	}
	return s.State
}

func classOf(s *admin.SourceState) string {
	switch {
	case s.State == "unreachable", s.State == "denied":
		return bad
	case s.Hold != nil, s.State != "healthy", s.Stale, !s.Synced, s.NotKept != "", s.Quarantined > 0:
		return warns
	}
	return well
}

// The kinds of clients.
const (
	ofEnvoy     = "Envoy"
	ofGRPC      = "gRPC"
	ofTributary = "tributary"
	ofCommand   = "tributary command"
	ofIstiod    = "istiod"
	ofOther     = "other"
)

// kindOfClient tells what a client is, by what it says of itself and what it asks for. No right follows from it.
func kindOfClient(c *xds.ClientStatus) string {
	agent := strings.ToLower(c.Node.GetUserAgentName())
	switch {
	case admin.IsCommand(c):
		return ofCommand
	case agent == "tributary":
		return ofTributary
	case strings.HasPrefix(agent, "grpc"), c.Node.GetMetadata().GetFields()["GENERATOR"].GetStringValue() == "grpc":
		return ofGRPC
	case slices.ContainsFunc(c.Types, func(t xds.TypeStatus) bool { _, ok := resource.SchemaByTypeURL(t.TypeURL); return ok }):
		return ofIstiod // or what is like one; it calls itself a sidecar
	case agent == "envoy", len(c.Types) > 0 && strings.HasPrefix(c.Types[0].TypeURL, "type.googleapis.com/envoy."):
		return ofEnvoy
	}
	return ofOther
}

func stationsOfClients(all []xds.ClientStatus) (stations []Station) {
	for _, kind := range []string{ofIstiod, ofEnvoy, ofGRPC, ofTributary, ofCommand, ofOther} {
		total, synced, rejecting := 0, 0, 0
		for i := range all {
			if kindOfClient(&all[i]) != kind {
				continue
			}
			total++
			switch condition(&all[i]) {
			case bad:
				rejecting++
			case well:
				synced++
			}
		}
		if total == 0 {
			continue
		}
		s := Station{
			Name: fmt.Sprintf("%d × %s", total, kind), Count: fmt.Sprintf("%d/%d", synced, total), Class: well,
			Note: "all acknowledged",
		}
		switch {
		case rejecting > 0:
			s.Class, s.Note = bad, fmt.Sprintf("%d reject what they are sent", rejecting)
		case synced < total:
			s.Class, s.Note = warns, fmt.Sprintf("%d not up to date", total-synced)
		}
		stations = append(stations, s)
	}
	return stations
}

// condition is that of the type that stands worst.
func condition(c *xds.ClientStatus) string {
	worst := well
	for i := range c.Types {
		if class, _ := standing(&c.Types[i]); severity(class) < severity(worst) {
			worst = class
		}
	}
	return worst
}

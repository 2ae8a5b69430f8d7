package page

import (
	"fmt"
	"slices"
	"strings"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/xds"
)

// The classes of the style sheet for a condition.
const (
	well  = "ok"
	warns = "warn"
	bad   = "bad"
	idle  = "idle"
)

// Flow is the picture: sources on the left, merged objects in the middle, and clients on the right. The table beside it
// has the same numbers.
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
	Note           string // its condition
	Count          string // on the arrow
	Class          string
	Y              int    // of its middle
	Arrow          string // SVG path
	LabelX, LabelY int
}

// The measures of the picture in units of its view box.
const (
	flowWidth   = 960
	flowStep    = 64
	flowTop     = 40
	boxWidth    = 240
	mergeLeft   = 390
	mergeWidth  = 180
	maxStations = 7
	maxName     = 26
)

// newFlow draws the status. Of many sources it shows the ones in trouble, and the rest as one.
func newFlow(status *admin.Status, clients []xds.ClientStatus) Flow {
	flow := Flow{Sources: sourceStations(status.Sources), Clients: clientStations(clients)}
	flow.Height = 2*flowTop + flowStep*(max(len(flow.Sources), len(flow.Clients), 1)-1) + 10
	flow.Middle = flow.Height / 2
	flow.Merged = mergedLines(status, flow.Middle)
	placeStations(flow.Sources, flow.Middle, boxWidth, mergeLeft)
	placeStations(flow.Clients, flow.Middle, mergeLeft+mergeWidth, flowWidth-boxWidth)
	return flow
}

// mergedLines returns the texts of the middle box.
func mergedLines(status *admin.Status, middle int) []Line {
	lines := []Line{{Text: words.Count(status.Objects, "object", "objects"), Class: "main"}}
	if number := status.Conflicts.Shadowed; number > 0 {
		lines = append(lines, Line{Text: fmt.Sprintf("%d in several sources", number), Class: "note"})
	}
	if number := status.Quarantined; number > 0 {
		lines = append(lines, Line{Text: fmt.Sprintf("%d quarantined", number), Class: "note"})
	}
	const height = 20
	for index := range lines {
		lines[index].Y = middle + 5 + index*height - (len(lines)-1)*height/2
	}
	return lines
}

// placeStations spreads stations over the height, and draws an arrow from x1 to x2 for each, with the label near its
// station. Arrows of sources end in the middle, and those of clients begin there.
func placeStations(stations []Station, middle, x1, x2 int) {
	top := middle - flowStep*(len(stations)-1)/2
	for index := range stations {
		station := &stations[index]
		station.Y = top + index*flowStep
		station.LabelX, station.LabelY = (x1+x2)/2, (station.Y+middle)/2-8
		from, to, bend := station.Y, middle, (x2-x1)/2
		if x1 > mergeLeft {
			from, to = to, from
		}
		station.Arrow = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, from, x1+bend, from, x2-bend, to, x2-7, to)
	}
}

func shortenText(text string) string {
	if letters := []rune(text); len(letters) > maxName {
		return string(letters[:maxName-1]) + "…"
	}
	return text
}

func sourceStations(sources []admin.SourceState) (stations []Station) {
	if len(sources) > maxStations {
		sources = slices.Clone(sources)
		slices.SortStableFunc(sources, func(first, second admin.SourceState) int {
			return severity(sourceClass(&first)) - severity(sourceClass(&second))
		})
	}
	for _, source := range sources {
		stations = append(stations, Station{
			Name: source.Name, Note: sourceNote(&source), Count: fmt.Sprint(source.Objects),
			Class: sourceClass(&source),
		})
	}
	if len(sources) <= maxStations {
		return stations
	}
	rest, objects := &stations[maxStations-1], 0 // with the class of the worst
	for _, source := range sources[maxStations-1:] {
		objects += source.Objects
	}
	rest.Name, rest.Note = fmt.Sprintf("%d more sources", len(sources)-maxStations+1), "see the table"
	rest.Count = fmt.Sprint(objects)
	return stations[:maxStations]
}

func severity(class string) int { return slices.Index([]string{bad, warns, idle, well}, class) }

// sourceNote describes the condition of a source in a few words.
func sourceNote(source *admin.SourceState) string {
	switch {
	case source.Hold != nil:
		return fmt.Sprintf("%s, holds back %d", source.State, source.Hold.Objects+source.Hold.Endpoints)
	case source.Stale:
		return source.State + ", stale"
	case !source.Synced:
		return source.State + ", not synced"
	case source.Quarantined > 0:
		return fmt.Sprintf("%s, %d quarantined", source.State, source.Quarantined)
	}
	return source.State
}

func sourceClass(source *admin.SourceState) string {
	switch {
	case source.State == "unreachable", source.State == "denied":
		return bad
	case source.Hold != nil, source.State != "healthy", source.Stale, !source.Synced, source.NotKept != "",
		source.Quarantined > 0:
		return warns
	}
	return well
}

// The kinds of clients.
const (
	kindEnvoy     = "Envoy"
	kindGRPC      = "gRPC"
	kindTributary = "tributary"
	kindCommand   = "tributary command"
	kindIstiod    = "istiod"
	kindOther     = "other"
)

// clientKind guesses the program of a client from its user agent and subscriptions. No right depends on it.
func clientKind(client *xds.ClientStatus) string {
	agent := strings.ToLower(client.Node.GetUserAgentName())
	switch {
	case admin.IsCommand(client):
		return kindCommand
	case agent == "tributary":
		return kindTributary
	case strings.HasPrefix(agent, "grpc"), client.Node.GetMetadata().GetFields()["GENERATOR"].GetStringValue() == "grpc":
		return kindGRPC
	case slices.ContainsFunc(client.Types,
		func(status xds.TypeStatus) bool { _, ok := resource.SchemaByTypeURL(status.TypeURL); return ok }):
		return kindIstiod // its node ID is a sidecar's
	case agent == "envoy", len(client.Types) > 0 &&
		strings.HasPrefix(client.Types[0].TypeURL, "type.googleapis.com/envoy."):
		return kindEnvoy
	}
	return kindOther
}

func clientStations(clients []xds.ClientStatus) (stations []Station) {
	for _, kind := range []string{kindIstiod, kindEnvoy, kindGRPC, kindTributary, kindCommand, kindOther} {
		total, synced, rejecting := 0, 0, 0
		for index := range clients {
			if clientKind(&clients[index]) != kind {
				continue
			}
			total++
			switch clientClass(&clients[index]) {
			case bad:
				rejecting++
			case well:
				synced++
			}
		}
		if total == 0 {
			continue
		}
		station := Station{
			Name: fmt.Sprintf("%d × %s", total, kind), Count: fmt.Sprintf("%d/%d", synced, total), Class: well,
			Note: "all acknowledged",
		}
		switch {
		case rejecting > 0:
			station.Class, station.Note = bad, fmt.Sprintf("%d reject updates", rejecting)
		case synced < total:
			station.Class, station.Note = warns, fmt.Sprintf("%d not up to date", total-synced)
		}
		stations = append(stations, station)
	}
	return stations
}

// clientClass returns the most severe class of a client's types.
func clientClass(client *xds.ClientStatus) string {
	worst := well
	for index := range client.Types {
		if class, _ := typeClass(&client.Types[index]); severity(class) < severity(worst) {
			worst = class
		}
	}
	return worst
}

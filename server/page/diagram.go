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

// The classes of conditions in the style sheet.
const (
	classOK      = "ok"
	classWarning = "warn"
	classBad     = "bad"
	classIdle    = "idle"
)

// Diagram is an SVG: sources on the left, merged objects in the middle, and clients on the right. The table beside it
// has the same numbers.
type Diagram struct {
	Height      int
	Middle      int // the vertical center
	MergedLines []TextLine
	Sources     []Box
	Clients     []Box
}

// TextLine is a line of text in the box of merged objects.
type TextLine struct {
	Text, Class string
	Y           int
}

// Box is the box of a source, or of the clients of one kind, with its arrow.
type Box struct {
	Name           string
	Note           string // the condition
	Count          string // the label of the arrow
	Class          string
	Y              int    // the vertical center
	Arrow          string // the SVG path
	LabelX, LabelY int    // the position of the label
}

// The measures of the diagram in units of its view box.
const (
	diagramWidth  = 960
	boxDistance   = 64
	topMargin     = 40
	boxWidth      = 240
	mergeLeft     = 390
	mergeWidth    = 180
	maxBoxes      = 7
	maxNameLength = 26
)

// newDiagram draws a status. Of many sources it shows those in trouble, and one box for the others.
func newDiagram(status *admin.Status, clients []xds.ClientStatus) Diagram {
	flow := Diagram{Sources: sourceBoxes(status.Sources), Clients: clientBoxes(clients)}
	flow.Height = 2*topMargin + boxDistance*(max(len(flow.Sources), len(flow.Clients), 1)-1) + 10
	flow.Middle = flow.Height / 2
	flow.MergedLines = mergedLines(status, flow.Middle)
	placeBoxes(flow.Sources, flow.Middle, boxWidth, mergeLeft)
	placeBoxes(flow.Clients, flow.Middle, mergeLeft+mergeWidth, diagramWidth-boxWidth)
	return flow
}

// mergedLines returns the text of the box in the middle.
func mergedLines(status *admin.Status, middle int) []TextLine {
	lines := []TextLine{{Text: words.Count(status.Objects, "object", "objects"), Class: "main"}}
	if number := status.Conflicts.Shadowed; number > 0 {
		lines = append(lines, TextLine{Text: fmt.Sprintf("%d in several sources", number), Class: "note"})
	}
	if number := status.Quarantined; number > 0 {
		lines = append(lines, TextLine{Text: fmt.Sprintf("%d quarantined", number), Class: "note"})
	}
	const height = 20
	for index := range lines {
		lines[index].Y = middle + 5 + index*height - (len(lines)-1)*height/2
	}
	return lines
}

// placeBoxes spreads boxes over the height, and draws the arrow of each from x1 to x2, with its label near the box.
// Arrows of sources end at the middle, and those of clients begin there.
func placeBoxes(boxes []Box, middle, x1, x2 int) {
	top := middle - boxDistance*(len(boxes)-1)/2
	for index := range boxes {
		box := &boxes[index]
		box.Y = top + index*boxDistance
		box.LabelX, box.LabelY = (x1+x2)/2, (box.Y+middle)/2-8
		bend := (x2 - x1) / 2
		from, to := box.Y, middle
		if x1 > mergeLeft {
			from, to = to, from
		}
		box.Arrow = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, from, x1+bend, from, x2-bend, to, x2-7, to)
	}
}

// shortenText cuts a text that is too long for a box.
func shortenText(text string) string {
	if letters := []rune(text); len(letters) > maxNameLength {
		return string(letters[:maxNameLength-1]) + "…"
	}
	return text
}

func sourceBoxes(sources []admin.SourceState) (boxes []Box) {
	if len(sources) > maxBoxes {
		sources = slices.Clone(sources)
		slices.SortStableFunc(sources, func(first, second admin.SourceState) int {
			return severity(sourceClass(&first)) - severity(sourceClass(&second))
		})
	}
	for _, source := range sources {
		boxes = append(boxes, Box{
			Name: source.Name, Note: sourceNote(&source), Count: fmt.Sprint(source.Objects),
			Class: sourceClass(&source),
		})
	}
	if len(sources) <= maxBoxes {
		return boxes
	}
	rest, objects := &boxes[maxBoxes-1], 0 // it keeps the class of its worst source
	for _, source := range sources[maxBoxes-1:] {
		objects += source.Objects
	}
	rest.Name, rest.Note = fmt.Sprintf("%d more sources", len(sources)-maxBoxes+1), "see the table"
	rest.Count = fmt.Sprint(objects)
	return boxes[:maxBoxes]
}

// severity returns the position of a class. Lower is worse.
func severity(class string) int {
	return slices.Index([]string{classBad, classWarning, classIdle, classOK}, class)
}

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
		return classBad
	case source.Hold != nil, source.State != "healthy", source.Stale, !source.Synced, source.NotKept != "",
		source.Quarantined > 0:
		return classWarning
	}
	return classOK
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

// clientKind guesses the program of a client from its user agent and subscriptions. It is only shown: no right depends
// on it.
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
		return kindIstiod // the node ID of an istiod has the form of a sidecar's
	case agent == "envoy", len(client.Types) > 0 &&
		strings.HasPrefix(client.Types[0].TypeURL, "type.googleapis.com/envoy."):
		return kindEnvoy
	}
	return kindOther
}

func clientBoxes(clients []xds.ClientStatus) (boxes []Box) {
	for _, kind := range []string{kindIstiod, kindEnvoy, kindGRPC, kindTributary, kindCommand, kindOther} {
		total, synced, rejecting := 0, 0, 0
		for index := range clients {
			if clientKind(&clients[index]) != kind {
				continue
			}
			total++
			switch clientClass(&clients[index]) {
			case classBad:
				rejecting++
			case classOK:
				synced++
			}
		}
		if total == 0 {
			continue
		}
		box := Box{
			Name: fmt.Sprintf("%d × %s", total, kind), Count: fmt.Sprintf("%d/%d", synced, total), Class: classOK,
			Note: "all acknowledged",
		}
		switch {
		case rejecting > 0:
			box.Class, box.Note = classBad, fmt.Sprintf("%d reject updates", rejecting)
		case synced < total:
			box.Class, box.Note = classWarning, fmt.Sprintf("%d not up to date", total-synced)
		}
		boxes = append(boxes, box)
	}
	return boxes
}

// clientClass returns the most severe class of a client's types.
func clientClass(client *xds.ClientStatus) string {
	worst := classOK
	for index := range client.Types {
		if class, _ := typeClass(&client.Types[index]); severity(class) < severity(worst) {
			worst = class
		}
	}
	return worst
}

package output

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"tributary/resource"
)

// column is what is shown of the spec of a kind.
type column struct {
	title string
	path  string // of the field
}

// columns are those that kubectl shows for Istio's CRDs.
var columnsOf = map[resource.Kind][]column{
	resource.AuthorizationPolicy: {{"ACTION", "action"}},
	resource.DestinationRule:     {{"HOST", "host"}},
	resource.Gateway:             {{"SELECTOR", "selector"}},
	resource.PeerAuthentication:  {{"MODE", "mtls.mode"}},
	resource.ServiceEntry:        {{"HOSTS", "hosts"}, {"LOCATION", "location"}, {"RESOLUTION", "resolution"}},
	resource.VirtualService:      {{"GATEWAYS", "gateways"}, {"HOSTS", "hosts"}},
	resource.WorkloadEntry:       {{"ADDRESS", "address"}},
}

// TableOptions say how a table looks.
type TableOptions struct {
	Namespaces bool // the first column is the namespace
	Kinds      bool // names have the kind before them, as get takes them
	Wide       bool // labels are shown, and all of what is long
	NoHeaders  bool
}

// Table prints rs, which are of one kind, with their age at now: since they were created, or else first seen.
func Table(w io.Writer, kind resource.Kind, rs []*resource.Resource, o TableOptions, now time.Time) error {
	var rows [][]string
	row := func(namespace, name string, cells []string, age, labels string) {
		line := append(append([]string{name}, cells...), age)
		if o.Namespaces {
			line = append([]string{namespace}, line...)
		}
		if o.Wide {
			line = append(line, labels)
		}
		rows = append(rows, line)
	}
	if !o.NoHeaders {
		row("NAMESPACE", "NAME", each(columnsOf[kind], func(c column) string { return c.title }), "AGE", "LABELS")
	}
	for _, r := range rs {
		cells, err := cellsOf(r, o.Wide)
		if err != nil {
			return err
		}
		name := r.Key().Name
		if o.Kinds {
			name = strings.ToLower(string(kind)) + "/" + name
		}
		row(cmp.Or(r.Key().Namespace, "-"), name, cells, age(r, now), labelsOf(r))
	}
	return align(w, 3, rows)
}

// align writes rows of cells in columns, with so many blanks between them.
func align(w io.Writer, blanks int, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, blanks, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t")) // Flush says if it failed
	}
	return t.Flush()
}

func labelsOf(r *resource.Resource) string {
	all := each(slices.Sorted(maps.Keys(r.Labels())), func(key string) string { return key + "=" + r.Labels()[key] })
	return cmp.Or(clean(strings.Join(all, ",")), "-")
}

func cellsOf(r *resource.Resource, wide bool) ([]string, error) {
	if len(columnsOf[r.Key().Kind]) == 0 {
		return nil, nil
	}
	spec, err := r.Spec()
	if err != nil {
		return nil, err
	}
	var cells []string
	for _, c := range columnsOf[r.Key().Kind] {
		cells = append(cells, cmp.Or(clean(show(spec.ProtoReflect(), strings.Split(c.path, "."), wide)), "-"))
	}
	return cells, nil
}

// show returns the field at path of m as text.
func show(m protoreflect.Message, path []string, wide bool) string {
	field := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if field == nil || field.HasPresence() && !m.Has(field) {
		return ""
	}
	value := m.Get(field)
	switch {
	case len(path) > 1:
		return show(value.Message(), path[1:], wide)
	case field.IsList():
		var items []string
		for i := range value.List().Len() {
			items = append(items, value.List().Get(i).String())
		}
		return join(items, wide)
	case field.IsMap():
		var items []string
		value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			items = append(items, k.String()+"="+v.String())
			return true
		})
		slices.Sort(items)
		return join(items, wide)
	case field.Enum() != nil:
		if e := field.Enum().Values().ByNumber(value.Enum()); e != nil {
			return string(e.Name())
		}
	}
	return value.String()
}

// join keeps a row within a screen, unless it may be wide.
func join(items []string, wide bool) string {
	const most = 3
	if len(items) <= most || wide {
		return strings.Join(items, ",")
	}
	return fmt.Sprintf("%s,+%d", strings.Join(items[:most], ","), len(items)-most)
}

// clean takes out what would break the table.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

// age is how old r is, as kubectl shows it.
func age(r *resource.Resource, now time.Time) string {
	since := r.Own()
	if since.IsZero() {
		since = r.Seen()
	}
	if since.IsZero() {
		return "-"
	}
	return Brief(now.Sub(since))
}

// Brief is a duration in its largest unit, as kubectl shows it.
func Brief(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

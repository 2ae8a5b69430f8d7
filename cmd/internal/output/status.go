package output

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/internal/history"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/transport"
)

// Status writes st, which the admin server at address answered, so that it fits the screen.
func Status(w io.Writer, address string, st *admin.Status, now time.Time, screen Screen) error {
	t := &text{now: now, screen: screen}
	t.head(address, st)
	t.problems(st.Troubles())
	t.line("")
	t.sources(st.Sources)
	t.line("")
	t.section("objects", kindsOf(st))
	t.section("conflicts", conflictsOf(st.Conflicts))
	if st.Unsure > 0 {
		t.section("unsure", words.Count(st.Unsure, "object is", "objects are")+
			" served only because of invalid texts, which may still have them")
	}
	if st.Unread > 0 {
		t.section("not read", "what "+words.Count(st.Unread, "object is", "objects are")+
			" in cannot be read now; what was read before is served")
	}
	if st.Warnings > 0 {
		t.section("warnings", strconv.Itoa(st.Warnings)+"; see /debug/sources, or tributary explain")
	}
	if st.LeftOut > 0 {
		t.section("left out", words.Count(st.LeftOut, "instance is", "instances are")+
			" not served; see /debug/sources, or tributary explain HOST|ADDRESS|INTERFACE")
	}
	if st.WithoutEffect > 0 {
		t.section("for Envoys", words.Count(st.WithoutEffect, "object uses", "objects use")+
			" settings that Envoy clients ignore; see /debug/no-effect, or tributary explain")
	}
	t.section("certificates", t.certificates(st.Certificates)...)
	t.section("HISTORY", t.history(st.History)...)
	t.line("")
	t.clients(st.Clients)
	return t.writeTo(w)
}

func (t *text) head(address string, st *admin.Status) {
	t.line("tributary %s at %s, up %s", st.Version, address, Brief(t.now.Sub(st.Started)))
	if len(st.Missing) == 0 {
		t.section("ready", "yes")
	} else {
		t.section("ready", "NOT READY")
	}
	lines := []string{cmp.Or(st.Config.File, "from the command line") + ", read " + t.at(st.Config.Loaded)}
	if st.Config.Failed != nil {
		lines = append(lines, "REFUSED "+t.at(*st.Config.Failed)+", the one above stays:")
		lines = append(lines, strings.Split(st.Config.Error, "\n")...)
	}
	if len(st.Config.Pending) > 0 {
		lines = append(lines, "Not read yet: "+strings.Join(st.Config.Pending, ", ")+". Objects it may own keep their previous version.")
	}
	t.section("config", append(lines, st.Config.Restart...)...)
	t.section("WARNINGS", st.Config.Warnings...)
}

// message is what there is to say of a source beyond its state.
func (t *text) message(s admin.SourceState) string {
	var said []string
	switch {
	case s.Stale && s.Synced:
		said = append(said, "serves what it read until "+t.ago(s.Since))
	case s.Stale && s.Restored != nil:
		said = append(said, "serves what was stored "+t.ago(s.Restored.Stored))
	}
	switch {
	case s.Message != "":
		said = append(said, oneLine(s.Message))
	case s.Restarts > 0:
		said = append(said, fmt.Sprintf("restarted %s, last because: %s", words.Count(s.Restarts, "time", "times"), oneLine(s.LastError)))
	}
	if s.Foreign > 0 {
		said = append(said, words.Count(s.Foreign, "object", "objects")+" of other APIs passed over")
	}
	if s.NotKept != "" {
		said = append(said, "NOT KEPT on disk: "+oneLine(s.NotKept))
	}
	return strings.Join(said, "; ")
}

// problems writes the troubles, the worst first, each with the advice and a command.
func (t *text) problems(troubles []admin.Trouble) {
	if len(troubles) == 0 {
		t.section("problems", "none")
		return
	}
	t.line("")
	t.line("PROBLEMS, the worst first:")
	for i, trouble := range troubles {
		t.line("%d. %s", i+1, oneLine(trouble.Text))
		t.line("   %s", trouble.Do)
		if len(trouble.Run) > 1 {
			t.line("   tributary %s", strings.Join(trouble.Run, " "))
		}
	}
}

func (t *text) certificates(all []transport.Status) (lines []string) {
	for _, c := range all {
		if c.NotAfter.IsZero() {
			lines = append(lines, fmt.Sprintf("%s: no certificate yet: TLS connections are refused: %s",
				c.Listener, oneLine(c.Trouble)))
			continue
		}
		until := "until " + c.NotAfter.UTC().Format(time.RFC3339)
		if c.Expired {
			until = "EXPIRED " + t.ago(c.NotAfter)
		}
		lines = append(lines, fmt.Sprintf("%s: for %s, %s", c.Listener, c.Subject, until))
		if c.Trouble != "" {
			lines = append(lines, "NOT IN FORCE, what was read before stays: "+oneLine(c.Trouble))
		}
	}
	return lines
}

const maxDamaged = 3

func (t *text) history(h *history.Health) (lines []string) {
	if h == nil {
		return nil
	}
	if h.Lost > 0 {
		lines = append(lines, words.Count(h.Lost, "change is", "changes are")+" not in it")
	}
	for _, d := range h.Damaged[:min(len(h.Damaged), maxDamaged)] {
		lines = append(lines, fmt.Sprintf("what was in %s is lost: %s, seen %s", d.File, d.Why, t.at(d.Seen)))
	}
	if more := len(h.Damaged) - maxDamaged; more > 0 {
		lines = append(lines, fmt.Sprintf("and %s more", words.Count(more, "file", "files")))
	}
	return lines
}

func kindsOf(st *admin.Status) string {
	if len(st.Kinds) == 0 {
		return "none"
	}
	kinds := words.Each(slices.Sorted(maps.Keys(st.Kinds)), func(kind resource.Kind) string {
		return fmt.Sprintf("%s %d", kind, st.Kinds[kind])
	})
	return fmt.Sprintf("%d: %s", st.Objects, strings.Join(kinds, ", "))
}

func conflictsOf(c admin.ConflictCounts) string {
	if c == (admin.ConflictCounts{}) {
		return "none"
	}
	return fmt.Sprintf("%s in several sources, %s more than once in one source, %s with competing objects; see /debug/conflicts, "+
		"/debug/competing, or tributary explain",
		words.Count(c.Shadowed, "key", "keys"), words.Count(c.Duplicates, "key", "keys"), words.Count(c.Competing, "host", "hosts"))
}

const maxClients = 20

func (t *text) clients(all []admin.ClientState) {
	if len(all) == 0 {
		t.line("no clients")
		return
	}
	all = slices.Clone(all)
	// Those in trouble first.
	slices.SortStableFunc(all, func(a, b admin.ClientState) int { return trouble(b) - trouble(a) })
	heads := []any{"CLIENT", "PEER", "SINCE", "MODE", "SYNCED", "NACKS"}
	proven := slices.ContainsFunc(all, func(c admin.ClientState) bool { return c.Identity != "" })
	if proven {
		heads = append(heads, "IDENTITY")
	}
	columns := t.columns(heads...)
	for _, c := range all[:min(len(all), maxClients)] {
		mode := "sotw"
		if c.Delta {
			mode = "delta"
		}
		row := []any{cmp.Or(c.Node, "(no node id)"), c.Peer, t.ago(c.Connected), mode, fmt.Sprintf("%d/%d", c.Synced, c.Types), c.Nacks}
		if proven {
			row = append(row, cmp.Or(c.Identity, "-"))
		}
		columns.row(row...)
	}
	columns.flush()
	if more := len(all) - maxClients; more > 0 {
		t.line("and %d more", more)
	}
	for _, c := range all[:min(len(all), maxClients)] {
		for _, r := range c.Rejects {
			t.line("%s REJECTED %s %s: %s", admin.ClientName(c.Node, c.Peer), r.TypeURL, t.at(r.Time), oneLine(r.Error))
		}
	}
}

func trouble(c admin.ClientState) int {
	switch {
	case len(c.Rejects) > 0:
		return 2
	case c.Synced < c.Types:
		return 1
	default:
		return 0
	}
}

type columns struct {
	t    *text
	rows [][]string
}

func (t *text) columns(titles ...any) *columns {
	c := &columns{t: t}
	c.row(titles...)
	return c
}

func (c *columns) row(cells ...any) {
	c.rows = append(c.rows, words.Each(cells, func(cell any) string { return fmt.Sprint(cell) }))
}

func (c *columns) text() string {
	var b strings.Builder
	_ = align(&b, 2, c.rows) // which does not fail
	return b.String()
}

// flush adds the table, whose rows are cut where the screen ends.
func (c *columns) flush() { _, _ = c.t.WriteString(c.t.screen.Cut(c.text())) }

// counted are the columns with what may be wrong with a source. On a screen they are left out while there is nothing in any.
var counted = []struct {
	title string
	of    func(admin.SourceState) int
}{
	{"HELD", func(s admin.SourceState) int {
		if s.Hold == nil {
			return 0
		}
		return s.Hold.Objects + s.Hold.Endpoints
	}},
	{"QUARANTINED", func(s admin.SourceState) int { return s.Quarantined }},
	{"WARNINGS", func(s admin.SourceState) int { return s.Warnings }},
	{"LEFT OUT", func(s admin.SourceState) int { return s.LeftOut }},
}

// sources writes a table of the sources. What there is to say of one stands in its row if that fits the screen, and else below the table:
// it must not be cut.
func (t *text) sources(all []admin.SourceState) {
	rows := t.sourceRows(all, true)
	fits := t.screen.Fits(rows.text())
	if !fits {
		rows = t.sourceRows(all, false)
	}
	rows.flush()
	for _, s := range all {
		if said := t.message(s); said != "" && !fits {
			t.line("  %s: %s", s.Name, said)
		}
	}
}

func (t *text) sourceRows(all []admin.SourceState, messages bool) *columns {
	shown := counted
	if t.screen.Width > 0 {
		shown = nil
		for _, c := range counted {
			if slices.ContainsFunc(all, func(s admin.SourceState) bool { return c.of(s) > 0 }) {
				shown = append(shown, c)
			}
		}
	}
	titles := []any{"SOURCE", "STATE", "OBJECTS"}
	for _, c := range shown {
		titles = append(titles, c.title)
	}
	titles = append(titles, "LAST CHANGE")
	if messages {
		titles = append(titles, "MESSAGE")
	}
	rows := t.columns(titles...)
	for _, s := range all {
		state, change := s.State, "-"
		if s.Stale {
			state += ", stale"
		}
		if !s.Synced {
			state += ", not synced"
		}
		if s.LastPublish != nil {
			change = t.ago(*s.LastPublish)
		}
		cells := []any{s.Name, state, s.Objects}
		for _, c := range shown {
			cells = append(cells, c.of(s))
		}
		cells = append(cells, change)
		if messages {
			cells = append(cells, t.message(s))
		}
		rows.row(cells...)
	}
	return rows
}

// Instance is one of a fleet: its status, or why there is none.
type Instance struct {
	Name   string        `json:"name"`
	Status *admin.Status `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// Fleet writes a line for each instance.
func Fleet(w io.Writer, all []Instance, now time.Time, screen Screen) error {
	t := &text{now: now, screen: screen}
	rows := t.columns("INSTANCE", "READY", "CONTENT", "OBJECTS", "UNHEALTHY", "HOLDS", "CLIENTS", "UP")
	for _, i := range all {
		st := i.Status
		if st == nil {
			rows.row(i.Name, "-", oneLine(i.Error))
			continue
		}
		ready, unhealthy := "yes", 0
		if len(st.Missing) > 0 {
			ready = "NO"
		}
		for _, s := range st.Sources {
			if s.State != "healthy" || !s.Synced {
				unhealthy++
			}
		}
		rows.row(i.Name, ready, st.Content, st.Objects, unhealthy, st.Holds, len(st.Clients), Brief(now.Sub(st.Started)))
	}
	rows.flush()
	if differ(all) {
		t.line("the instances serve different content")
	}
	return t.writeTo(w)
}

// CheckFleet writes in a few lines whether all is well with the instances, and whether they serve the same, and reports it.
func CheckFleet(w io.Writer, all []Instance) (well bool, err error) {
	t, objects, clients := &text{}, 0, 0
	for _, i := range all {
		if i.Status == nil {
			t.line("%s: %s", i.Name, oneLine(i.Error))
			continue
		}
		for _, trouble := range i.Status.Troubles() {
			t.line("%s: %s", i.Name, trouble.Text)
		}
		objects, clients = max(objects, i.Status.Objects), clients+len(i.Status.Clients)
	}
	if differ(all) {
		for _, i := range all {
			if i.Status != nil {
				t.line("%s: serves content %s, %s: not the same as the others", i.Name, i.Status.Content,
					words.Count(i.Status.Objects, "object", "objects"))
			}
		}
	}
	if well = t.Len() == 0; well {
		t.line("ok: %s, %s, %s", words.Count(len(all), "instance", "instances"), words.Count(objects, "object", "objects"),
			words.Count(clients, "client", "clients"))
	}
	_, err = fmt.Fprint(w, t.String())
	return well, err
}

func differ(all []Instance) bool {
	first := ""
	for _, i := range all {
		switch {
		case i.Status == nil:
		case first == "":
			first = i.Status.Content
		case i.Status.Content != first:
			return true
		}
	}
	return false
}

// Check writes in a few lines whether all is well, and reports it.
func Check(w io.Writer, st *admin.Status) (well bool, err error) {
	v := st.Verdict()
	lines := []string{v.Sentence}
	if !v.Well {
		lines = words.Each(v.Troubles, func(t admin.Trouble) string { return t.Text })
	}
	_, err = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return v.Well, err
}

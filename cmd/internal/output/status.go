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
	t.line("")
	t.sources(st.Sources)
	t.line("")
	t.section("objects", kindsOf(st))
	t.section("conflicts", conflictsOf(st.Conflicts))
	t.section("quarantine", quarantineOf(st)...)
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
	t.section("REJECTED", rejectedOf(st.Rejected, st.RejectedMore)...)
	t.section("holds", t.holds(st.Sources)...)
	t.section("certificates", t.certificates(st.Certificates)...)
	t.section("verified", t.verified(st.Verified)...)
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
		t.section("NOT READY", st.Missing...)
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

// maxRejected is how many of the resources that clients reject are named.
const maxRejected = 5

func rejectedOf(all []admin.Rejected, unlisted int) (lines []string) {
	for _, r := range all[:min(len(all), maxRejected)] {
		lines = append(lines, fmt.Sprintf("%s by %s: %s; %s", r.What(), words.Count(r.Clients, "client", "clients"), oneLine(r.Error),
			r.Causes()))
	}
	if more := max(len(all)-maxRejected, 0) + unlisted; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more; see /debug/rejected", more))
	}
	return lines
}

func (t *text) certificates(all []transport.Status) (lines []string) {
	for _, c := range all {
		if c.NotAfter.IsZero() {
			lines = append(lines, fmt.Sprintf("%s: NONE YET, nobody comes in: %s", c.Listener, oneLine(c.Trouble)))
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

// verified says of each istiod and Envoy how it has what is served.
func (t *text) verified(all []admin.Verified) (lines []string) {
	for _, v := range all {
		said := "not yet"
		if v.At != nil {
			said = "has everything, " + t.ago(*v.At)
		}
		if v.Wrong() > 0 {
			said = "NOT AS SERVED: " + v.Found() + ", " + t.ago(*v.At) + "; see /debug/verify"
		}
		if v.Error != "" {
			said += "; cannot be asked: " + oneLine(v.Error)
		}
		lines = append(lines, v.Istiod+v.Envoy+": "+said)
	}
	return lines
}

// maxDamaged is how many of the files of the history that are damaged are named.
const maxDamaged = 3

// history says what is wrong with it.
func (t *text) history(h *history.Health) (lines []string) {
	if h == nil {
		return nil
	}
	if h.Error != "" {
		lines = append(lines, "CANNOT BE WRITTEN: "+oneLine(h.Error))
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
	kinds := each(slices.Sorted(maps.Keys(st.Kinds)), func(kind resource.Kind) string { return fmt.Sprintf("%s %d", kind, st.Kinds[kind]) })
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

func quarantineOf(st *admin.Status) []string {
	if st.Quarantined == 0 {
		return []string{"empty"}
	}
	lines := []string{words.Count(st.Quarantined, "object", "objects") + " not valid; see /debug/quarantine, or tributary explain"}
	if st.Unsure > 0 {
		lines = append(lines, words.Count(st.Unsure, "object is", "objects are")+
			" served only because of those that cannot be read: they may be gone")
	}
	return lines
}

func (t *text) holds(all []admin.SourceState) (lines []string) {
	for _, s := range all {
		if s.Hold == nil {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s lost %s and %s, held since %s", s.Name, words.Count(s.Hold.Objects, "object", "objects"),
			words.Count(s.Hold.Endpoints, "endpoint", "endpoints"), t.at(s.Hold.Since)))
		lines = append(lines, release(s.Name, s.Hold.ID, s.Hold.Why, s.Hold.Until)...)
	}
	if len(lines) == 0 {
		return []string{"none"}
	}
	return lines
}

// maxClients is how many clients are listed.
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

// trouble is larger for who needs more attention.
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

// columns is a table in the making.
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
	c.rows = append(c.rows, each(cells, func(cell any) string { return fmt.Sprint(cell) }))
}

// text is the table as it is now.
func (c *columns) text() string {
	var b strings.Builder
	_ = align(&b, 2, c.rows) // which does not fail
	return b.String()
}

// flush adds the table, whose rows are cut where the screen ends.
func (c *columns) flush() { _, _ = c.t.WriteString(c.t.screen.Cut(c.text())) }

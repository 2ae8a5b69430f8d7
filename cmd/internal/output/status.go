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

// Status writes the status that the admin server at address answered, so that it fits the screen.
func Status(writer io.Writer, address string, status *admin.Status, now time.Time, screen Screen) error {
	report := &text{now: now, screen: screen}
	report.summary(address, status)
	report.problems(status.Troubles())
	report.line("")
	report.sources(status.Sources)
	report.line("")
	report.section("objects", kindSummary(status))
	report.section("conflicts", conflictSummary(status.Conflicts))
	if status.Unsure > 0 {
		report.section("unsure", words.Count(status.Unsure, "object is", "objects are")+
			" served only because of invalid texts, which may still have them")
	}
	if status.Unread > 0 {
		report.section("not read", words.Count(status.Unread, "object is", "objects are")+
			" unreadable now; the previous version is served")
	}
	if status.Warnings > 0 {
		report.section("warnings", strconv.Itoa(status.Warnings)+"; see /debug/sources, or tributary explain")
	}
	if status.LeftOut > 0 {
		report.section("left out", words.Count(status.LeftOut, "instance is", "instances are")+
			" not served; see /debug/sources, or tributary explain HOST|ADDRESS|INTERFACE")
	}
	if status.WithoutEffect > 0 {
		report.section("for Envoys", words.Count(status.WithoutEffect, "object uses", "objects use")+
			" settings that Envoy clients ignore; see /debug/no-effect, or tributary explain")
	}
	report.section("certificates", report.certificates(status.Certificates)...)
	report.section("HISTORY", report.history(status.History)...)
	report.line("")
	report.clients(status.Clients)
	return report.writeTo(writer)
}

func (t *text) summary(address string, status *admin.Status) {
	t.line("tributary %s at %s, up %s", status.Version, address, Brief(t.now.Sub(status.Started)))
	if len(status.Obstacles) == 0 {
		t.section("ready", "yes")
	} else {
		t.section("ready", "NOT READY")
	}
	lines := []string{
		cmp.Or(status.Config.File, "from the command line") + ", read " + t.timestamp(status.Config.Loaded),
	}
	if status.Config.Failed != nil {
		lines = append(lines, "REFUSED "+t.timestamp(*status.Config.Failed)+", the one above stays:")
		lines = append(lines, strings.Split(status.Config.Error, "\n")...)
	}
	if len(status.Config.Pending) > 0 {
		lines = append(lines, "Not read yet: "+strings.Join(status.Config.Pending, ", ")+
			". Objects it may own keep their previous version.")
	}
	t.section("config", append(lines, status.Config.Restart...)...)
	t.section("WARNINGS", status.Config.Warnings...)
}

// message explains the state of a source.
func (t *text) message(source admin.SourceState) string {
	var notes []string
	switch {
	case source.Stale && source.Synced:
		notes = append(notes, "serves its state of "+t.elapsed(source.Since))
	case source.Stale && source.Restored != nil:
		notes = append(notes, "serves the state stored "+t.elapsed(source.Restored.Stored))
	}
	switch {
	case source.Message != "":
		notes = append(notes, singleLine(source.Message))
	case source.Restarts > 0:
		notes = append(notes, fmt.Sprintf("restarted %s, last because: %s", words.Count(source.Restarts, "time", "times"),
			singleLine(source.LastError)))
	}
	if source.Foreign > 0 {
		notes = append(notes, words.Count(source.Foreign, "object", "objects")+" of other APIs passed over")
	}
	if source.NotKept != "" {
		notes = append(notes, "NOT KEPT on disk: "+singleLine(source.NotKept))
	}
	return strings.Join(notes, "; ")
}

// problems writes the troubles in order of severity, each with advice and a command.
func (t *text) problems(troubles []admin.Trouble) {
	if len(troubles) == 0 {
		t.section("problems", "none")
		return
	}
	t.line("")
	t.line("PROBLEMS, the worst first:")
	for index, trouble := range troubles {
		t.line("%d. %s", index+1, singleLine(trouble.Text))
		t.line("   %s", trouble.Advice)
		if len(trouble.Arguments) > 1 {
			t.line("   tributary %s", strings.Join(trouble.Arguments, " "))
		}
	}
}

func (t *text) certificates(certificates []transport.Status) (lines []string) {
	for _, certificate := range certificates {
		if certificate.NotAfter.IsZero() {
			lines = append(lines, fmt.Sprintf("%s: no certificate yet: TLS connections are refused: %s",
				certificate.Listener, singleLine(certificate.Trouble)))
			continue
		}
		validity := "until " + certificate.NotAfter.UTC().Format(time.RFC3339)
		if certificate.Expired {
			validity = "EXPIRED " + t.elapsed(certificate.NotAfter)
		}
		lines = append(lines, fmt.Sprintf("%s: for %s, %s", certificate.Listener, certificate.Subject, validity))
		if certificate.Trouble != "" {
			lines = append(lines, "NOT IN FORCE, the previous one stays: "+singleLine(certificate.Trouble))
		}
	}
	return lines
}

const maxDamaged = 3

func (t *text) history(health *history.Health) (lines []string) {
	if health == nil {
		return nil
	}
	if health.Lost > 0 {
		lines = append(lines, words.Count(health.Lost, "change is", "changes are")+" not in it")
	}
	for _, damage := range health.Damaged[:min(len(health.Damaged), maxDamaged)] {
		lines = append(lines, fmt.Sprintf("the content of %s is lost: %s, seen %s", damage.File, damage.Why,
			t.timestamp(damage.Seen)))
	}
	if rest := len(health.Damaged) - maxDamaged; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %s more", words.Count(rest, "file", "files")))
	}
	return lines
}

func kindSummary(status *admin.Status) string {
	if len(status.Kinds) == 0 {
		return "none"
	}
	kinds := words.Each(slices.Sorted(maps.Keys(status.Kinds)), func(kind resource.Kind) string {
		return fmt.Sprintf("%s %d", kind, status.Kinds[kind])
	})
	return fmt.Sprintf("%d: %s", status.Objects, strings.Join(kinds, ", "))
}

func conflictSummary(counts admin.ConflictCounts) string {
	if counts == (admin.ConflictCounts{}) {
		return "none"
	}
	return fmt.Sprintf("%s in several sources, %s more than once in one source, %s with competing objects; see "+
		"/debug/conflicts, /debug/competing, or tributary explain", words.Count(counts.Shadowed, "key", "keys"),
		words.Count(counts.Duplicates, "key", "keys"),
		words.Count(counts.Competing, "host or workload", "hosts or workloads"))
}

const maxClients = 20

func (t *text) clients(clients []admin.ClientState) {
	if len(clients) == 0 {
		t.line("no clients")
		return
	}
	clients = slices.Clone(clients)
	// Clients in trouble come first.
	slices.SortStableFunc(clients, func(first, second admin.ClientState) int { return severity(second) - severity(first) })
	table := rows{{"CLIENT", "PEER", "SINCE", "MODE", "SYNCED", "NACKS"}}
	proven := slices.ContainsFunc(clients, func(client admin.ClientState) bool { return client.Identity != "" })
	if proven {
		table[0] = append(table[0], "IDENTITY")
	}
	for _, client := range clients[:min(len(clients), maxClients)] {
		mode := "sotw"
		if client.Delta {
			mode = "delta"
		}
		row := []any{
			cmp.Or(client.Node, "(no node id)"), client.Peer, t.elapsed(client.Connected), mode,
			fmt.Sprintf("%d/%d", client.Synced, client.Types), client.Nacks,
		}
		if proven {
			row = append(row, cmp.Or(client.Identity, "-"))
		}
		table.add(row...)
	}
	t.table(table)
	if rest := len(clients) - maxClients; rest > 0 {
		t.line("and %d more", rest)
	}
	for _, client := range clients[:min(len(clients), maxClients)] {
		for _, reject := range client.Rejects {
			t.line("%s REJECTED %s %s: %s", admin.ClientName(client.Node, client.Peer), reject.TypeURL, t.timestamp(reject.Time),
				singleLine(reject.Error))
		}
	}
}

func severity(client admin.ClientState) int {
	switch {
	case len(client.Rejects) > 0:
		return 2
	case client.Synced < client.Types:
		return 1
	default:
		return 0
	}
}

// rows are the rows of a table.
type rows [][]string

func (r *rows) add(cells ...any) {
	*r = append(*r, words.Each(cells, func(cell any) string { return fmt.Sprint(cell) }))
}

func (r rows) String() string {
	var b strings.Builder
	_ = align(&b, 2, r) // a strings.Builder does not fail
	return b.String()
}

// table adds a table, and cuts rows at the edge of the screen.
func (t *text) table(table rows) { _, _ = t.WriteString(t.screen.Cut(table.String())) }

// noProblem is the cell of a source without a problem.
const noProblem = "0"

// problemColumns count the problems of sources. A screen shows only those with a count above zero.
var problemColumns = []struct {
	title string
	cell  func(admin.SourceState) string
}{
	{"HELD", func(s admin.SourceState) string {
		if s.Hold == nil {
			return noProblem
		}
		return s.Hold.Loss()
	}},
	{"QUARANTINED", func(s admin.SourceState) string { return strconv.Itoa(s.Quarantined) }},
	{"WARNINGS", func(s admin.SourceState) string { return strconv.Itoa(s.Warnings) }},
	{"LEFT OUT", func(s admin.SourceState) string { return strconv.Itoa(s.LeftOut) }},
}

// sources writes a table of the sources. Messages stand in the rows if they fit the screen, and else below the table,
// since they must not be cut.
func (t *text) sources(sources []admin.SourceState) {
	table := t.sourceRows(sources, withMessages)
	fits := t.screen.Fits(table.String())
	if !fits {
		table = t.sourceRows(sources, withoutMessages)
	}
	t.table(table)
	for _, source := range sources {
		if message := t.message(source); message != "" && !fits {
			t.line("  %s: %s", source.Name, message)
		}
	}
}

// The tables of sources, with and without the column of messages.
const (
	withMessages    = true
	withoutMessages = false
)

func (t *text) sourceRows(sources []admin.SourceState, messages bool) (table rows) {
	shown := problemColumns
	if t.screen.Width > 0 {
		shown = nil
		for _, column := range problemColumns {
			if slices.ContainsFunc(sources, func(source admin.SourceState) bool { return column.cell(source) != noProblem }) {
				shown = append(shown, column)
			}
		}
	}
	titles := []any{"SOURCE", "STATE", "OBJECTS"}
	for _, column := range shown {
		titles = append(titles, column.title)
	}
	titles = append(titles, "LAST CHANGE")
	if messages {
		titles = append(titles, "MESSAGE")
	}
	table.add(titles...)
	for _, source := range sources {
		state, change := source.State, "-"
		if source.Stale {
			state += ", stale"
		}
		if !source.Synced {
			state += ", not synced"
		}
		if source.LastPublish != nil {
			change = t.elapsed(*source.LastPublish)
		}
		cells := []any{source.Name, state, source.Objects}
		for _, column := range shown {
			cells = append(cells, column.cell(source))
		}
		cells = append(cells, change)
		if messages {
			cells = append(cells, t.message(source))
		}
		table.add(cells...)
	}
	return table
}

// Instance is one of a fleet: its status, or the error of asking for it.
type Instance struct {
	Name   string        `json:"name"`
	Status *admin.Status `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// Fleet writes a line for each instance.
func Fleet(writer io.Writer, instances []Instance, now time.Time, screen Screen) error {
	report := &text{now: now, screen: screen}
	table := rows{{"INSTANCE", "READY", "CONTENT", "OBJECTS", "UNHEALTHY", "HOLDS", "CLIENTS", "UP"}}
	for _, instance := range instances {
		status := instance.Status
		if status == nil {
			table.add(instance.Name, "-", singleLine(instance.Error))
			continue
		}
		ready, unhealthy := "yes", 0
		if len(status.Obstacles) > 0 {
			ready = "NO"
		}
		for _, source := range status.Sources {
			if source.State != "healthy" || !source.Synced {
				unhealthy++
			}
		}
		table.add(instance.Name, ready, status.Content, status.Objects, unhealthy, status.Holds, len(status.Clients),
			Brief(now.Sub(status.Started)))
	}
	report.table(table)
	if contentDiffers(instances) {
		report.line("the instances serve different content")
	}
	return report.writeTo(writer)
}

// CheckFleet writes the troubles of the instances and differences of their content, or one line if there are none.
func CheckFleet(writer io.Writer, instances []Instance) (well bool, err error) {
	report, objects, clients := &text{}, 0, 0
	for _, instance := range instances {
		if instance.Status == nil {
			report.line("%s: %s", instance.Name, singleLine(instance.Error))
			continue
		}
		for _, trouble := range instance.Status.Troubles() {
			report.line("%s: %s", instance.Name, trouble.Text)
		}
		objects, clients = max(objects, instance.Status.Objects), clients+len(instance.Status.Clients)
	}
	if contentDiffers(instances) {
		for _, instance := range instances {
			if instance.Status != nil {
				report.line("%s: serves content %s, %s: not the same as the others", instance.Name, instance.Status.Content,
					words.Count(instance.Status.Objects, "object", "objects"))
			}
		}
	}
	if well = report.Len() == 0; well {
		report.line("ok: %s, %s, %s", words.Count(len(instances), "instance", "instances"),
			words.Count(objects, "object", "objects"), words.Count(clients, "client", "clients"))
	}
	_, err = fmt.Fprint(writer, report.String())
	return well, err
}

func contentDiffers(instances []Instance) bool {
	contents := make(map[string]bool)
	for _, instance := range instances {
		if instance.Status != nil {
			contents[instance.Status.Content] = true
		}
	}
	return len(contents) > 1
}

// Check writes the troubles, or one line if there are none.
func Check(writer io.Writer, status *admin.Status) (well bool, err error) {
	verdict := status.Verdict()
	report := &text{}
	if verdict.Well {
		report.line("%s", verdict.Sentence)
	}
	for _, trouble := range verdict.Troubles {
		report.line("%s", trouble.Text)
	}
	_, err = io.WriteString(writer, report.String())
	return verdict.Well, err
}

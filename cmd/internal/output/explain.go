package output

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/aggregate"
	"tributary/internal/history"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/sources"
)

// Explain writes e, which answers the question for asked: a key or a host.
func Explain(w io.Writer, asked string, e *admin.Explanation, now time.Time) error {
	t := &text{now: now}
	if len(e.Objects) == 0 {
		t.line("%s: %s", asked, e.Why)
		t.section("it was there", t.gone(e.Gone)...)
		excluded := words.Each(e.Excluded, func(e sources.Excluded) string { return e.Source + ": " + e.Place })
		t.section("left out by the transforms of its source", excluded...)
		t.section("left out", leftOut(e.LeftOut)...)
		t.section("similar", words.Each(e.Similar, similar)...)
		t.section("not readable", words.Each(e.Unread, func(q admin.Quarantined) string { return q.Said() })...)
		return t.writeTo(w)
	}
	if len(e.Objects) > 1 {
		t.line("%s: %s\n", asked, e.Why)
	}
	for _, line := range e.Picture {
		t.line("%s", line)
	}
	if len(e.Picture) > 0 {
		t.line("")
	}
	for i, o := range e.Objects {
		if i > 0 {
			t.line("")
		}
		t.object(o, e.NotReady)
	}
	if len(e.LeftOut) > 0 {
		t.line("")
		t.section("left out", leftOut(e.LeftOut)...)
	}
	t.translated(e.Translated)
	if slices.ContainsFunc(e.Objects, acknowledged) {
		t.line("\nAn acknowledgement says that it arrived. istiod acknowledges also what it then ignores.")
	}
	return t.writeTo(w)
}

func (t *text) gone(last *history.Entry) []string {
	if last == nil || last.Event != history.Deleted {
		return nil
	}
	until := "until " + t.at(last.Time)
	if last.Unwatched {
		until = "before " + t.at(last.Time) + ": it went while the server did not run"
	}
	if last.Source != "" {
		until += "; it came from " + strings.TrimSpace(last.Source+" "+oneLine(last.Place))
	}
	return []string{until, "what it was: tributary history " + string(last.Kind) + " " + last.Key().FullName()}
}

func (t *text) object(o admin.Explained, notReady bool) {
	t.line("%s", o.Object.Key())
	if o.Winner != nil {
		label := "served from"
		if notReady {
			label = "to serve from"
		}
		t.section(label, t.statement(*o.Winner)...)
		t.section("because", strings.Split(o.Why, "; ")...)
	} else {
		t.section("not served", o.Why)
	}
	t.section("merged from", t.members(o)...)
	t.section("endpoints", endpoints(o)...)
	t.section("not used", t.losers(o)...)
	t.section("quarantined", t.quarantined(o.Quarantined)...)
	t.section("not certain", unsure(o.Unsure)...)
	t.section("not read", remarks(o.NotRead, "cannot read what it is in, and serves what it read before: ")...)
	t.section("warning", remarks(o.Warnings, "")...)
	t.section("LEADS NOWHERE", o.Unresolved...)
	t.section("for Envoys", o.WithoutEffect...)
	t.section("REJECTED", t.rejected(o.Rejected)...)
	t.section("held", t.held(o.Held)...)
	t.section("conflict", conflicts(o)...)
	t.section("clients", t.recipients(o)...)
	t.section("content", content(o.Content)...)
}

const maxContent = 40

func content(yaml string) []string {
	if yaml == "" {
		return nil
	}
	return atMost(strings.Split(strings.TrimSpace(yaml), "\n"), maxContent,
		"… and %d lines more: tributary get KIND NAME -n NAMESPACE -o yaml", func(line string) string { return line })
}

// statement says where a source has an object, and what the rules of the source made of it.
func (t *text) statement(s aggregate.Statement) []string {
	line := s.Source
	if s.Place != "" {
		line += ": " + s.Place
	}
	line += fmt.Sprintf("  [version %.8s", s.Version)
	if s.Created != nil {
		line += ", created " + t.at(*s.Created)
	}
	if s.FirstSeen != nil {
		line += ", first seen " + t.at(*s.FirstSeen)
	}
	lines := []string{line + "]"}
	if s.Transforms != "" {
		lines = append(lines, "  by the rules of "+s.Source+": "+s.Transforms)
	}
	if s.Before != nil {
		for line := range strings.Lines(s.Before.Diff) {
			lines = append(lines, "    "+strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func (t *text) losers(o admin.Explained) (lines []string) {
	for _, s := range o.Shadowed {
		lines = append(lines, t.statement(s)...)
	}
	if o.Merged != nil {
		for _, m := range o.Merged.Refused {
			lines = append(append(lines, t.statement(m.Statement)...), "  cannot be merged: "+m.Reason)
		}
	}
	for _, d := range o.Duplicates {
		for _, place := range d.Losers {
			lines = append(lines, fmt.Sprintf("%s: %s  [%s has it already at %s]", d.Source, place, d.Source, d.Winner))
		}
	}
	return lines
}

func (t *text) rejected(all []admin.Rejected) (lines []string) {
	for _, r := range all {
		lines = append(lines, fmt.Sprintf("%s, by %s since %s: %s", r.What(), admin.ClientName(r.Node, r.Peer), t.at(r.Since), oneLine(r.Error)),
			"  "+r.Causes())
	}
	return lines
}

func (t *text) quarantined(all []admin.Quarantined) (lines []string) {
	for _, q := range all {
		lines = append(lines, q.Said())
		what := "nothing is served in its place"
		if q.LastGoodServes {
			what = "its last good version is served"
		} else if len(q.Keeps) > 0 {
			what = "served is " + q.Serves()
		}
		lines = append(lines, "  since "+t.at(q.Since)+"; "+what)
	}
	return lines
}

func remarks(all []admin.Remark, what string) []string {
	return words.Each(all, func(r admin.Remark) string {
		return r.Source + ": " + what + strings.TrimPrefix(oneLine(r.Text), r.Source+": ")
	})
}

func unsure(all []admin.Quarantined) (lines []string) {
	for _, q := range all {
		lines = append(lines, q.Source+" no longer has it, or it is what cannot be read in "+q.Group+"; it is served until that can be:",
			"  "+q.Said())
	}
	return lines
}

const maxLeftOut = 50

func leftOut(all []sources.LeftOut) []string {
	return atMost(all, maxLeftOut, "and %d more; see -o json", func(l sources.LeftOut) string { return l.Source + ": " + oneLine(l.String()) })
}

func (t *text) held(holds []admin.Held) (lines []string) {
	for _, hold := range holds {
		lines = append(lines,
			fmt.Sprintf("%s removed or shrank this; the change is on hold since %s", hold.Source, t.at(hold.Since)),
			"  why: "+oneLine(hold.Why))
		if hold.Until != nil {
			lines = append(lines, "  until: "+hold.Until.UTC().Format(time.RFC3339))
		}
		lines = append(lines, "  to let it through: tributary guard release "+hold.Source+" --hold "+hold.ID)
	}
	return lines
}

func conflicts(o admin.Explained) (lines []string) {
	for _, c := range o.Conflicts {
		var others []string
		for _, other := range c.Objects {
			if other != o.Object {
				others = append(others, other.Key().String())
			}
		}
		lines = append(lines, fmt.Sprintf("on %s with %s", c.Subject, strings.Join(others, ", ")), "  "+c.Message)
	}
	return lines
}

const maxRecipients = 10

func (t *text) recipients(o admin.Explained) (lines []string) {
	if len(o.Recipients) == 0 {
		return []string{"no client asks for " + string(o.Object.Kind)}
	}
	synced := 0
	for _, r := range o.Recipients {
		if r.Synced && !r.Hidden {
			if synced++; synced > maxRecipients {
				continue
			}
		}
		lines = append(lines, admin.ClientName(r.Node, r.Peer)+": "+t.received(r))
	}
	if more := synced - maxRecipients; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more that acknowledged the newest version", more))
	}
	return lines
}

func (t *text) received(r admin.Recipient) string {
	switch {
	case r.Hidden:
		return "is not sent it, for its ISTIO_REVISION or NAMESPACES exclude it"
	case r.Sent == nil:
		return "has asked, and was sent nothing yet"
	case r.Nack != nil && r.Nack.Nonce == r.Sent.Nonce:
		return "REJECTED what it was sent " + t.at(r.Sent.Time) + ": " + oneLine(r.Nack.Error)
	case r.Synced && r.Acked != nil:
		return "sent " + t.at(r.Sent.Time) + ", acknowledged after " + r.Acked.Time.Sub(r.Sent.Time).Round(time.Millisecond).String() +
			": it has the newest version"
	case r.Acked == nil:
		return "sent " + t.at(r.Sent.Time) + ", nothing acknowledged yet"
	case r.Acked.Nonce == r.Sent.Nonce:
		return "sent " + t.at(r.Sent.Time) + ", acknowledged; a newer version is on its way"
	default:
		return "sent " + t.at(r.Sent.Time) + ", not acknowledged; the last that it did was version " +
			cmp.Or(r.Acked.Version, "(none)") + ", " + t.at(r.Acked.Time)
	}
}

// translated says how far those are who are sent what is made of objects, and where to look for more.
func (t *text) translated(all *admin.Translated) {
	if all == nil {
		return
	}
	t.line("\nEnvoy and gRPC clients receive generated xDS: %d of %d up to date:", all.Synced, all.Clients)
	for _, c := range all.Some {
		said := words.Each(c.Rejects, func(r admin.Reject) string {
			return "REJECTED " + r.TypeURL + " " + t.at(r.Time) + ": " + oneLine(r.Error)
		})
		if len(c.Behind) > 0 {
			said = append(said, "has not acknowledged the newest "+strings.Join(c.Behind, ", "))
		}
		if len(said) == 0 {
			said = []string{"has acknowledged all"}
		}
		t.line("  %s: %s", admin.ClientName(c.Node, c.Peer), strings.Join(said, "; "))
	}
	if more := all.Clients - len(all.Some); more > 0 {
		t.line("  and %d more; see /debug/clients", more)
	}
	t.line("What one of them is told: tributary get clusters --node-id NODE. Whether an Envoy has it: tributary verify --envoy " +
		"http://HOST:15000.")
}

func acknowledged(o admin.Explained) bool {
	return slices.ContainsFunc(o.Recipients, func(r admin.Recipient) bool { return r.Acked != nil })
}

func similar(s admin.Similar) string {
	if s.Host != "" {
		return s.Host + ", in " + s.Key().String()
	}
	return s.Key().String()
}

func (t *text) members(o admin.Explained) (lines []string) {
	if o.Merged == nil {
		return nil
	}
	for _, m := range o.Merged.Members {
		lines = append(lines, t.statement(m.Statement)...)
	}
	return lines
}

func endpoints(o admin.Explained) (lines []string) {
	if o.Merged == nil {
		return nil
	}
	for _, e := range o.Merged.Endpoints {
		ports := words.Each(slices.Sorted(maps.Keys(e.Ports)), func(port uint32) string { return fmt.Sprintf("%d→%d", port, e.Ports[port]) })
		line := strings.TrimRight(e.Address+" "+strings.Join(ports, ","), " ")
		if e.Locality != "" {
			line += " in " + e.Locality
		}
		line += "  from " + e.Source
		if len(e.Also) > 0 {
			line += ", also in " + strings.Join(e.Also, ", ")
		}
		if e.Standby {
			line += "  [standby]"
		}
		lines = append(lines, line)
	}
	return lines
}

// Guard writes all that is held.
func Guard(w io.Writer, all []admin.Guarded, now time.Time) error {
	t := &text{now: now}
	if len(all) == 0 {
		t.line("nothing is held")
	}
	for i, h := range all {
		if i > 0 {
			t.line("")
		}
		t.line("%s", h.Source)
		t.section("held", words.Count(h.Objects, "object", "objects")+" and "+words.Count(h.Endpoints, "endpoint", "endpoints"))
		t.section("hold", h.ID)
		t.section("since", t.at(h.Since))
		if h.Until != nil {
			t.section("until", h.Until.UTC().Format(time.RFC3339))
		}
		t.section("why", oneLine(h.Why))
		var lost []string
		for _, l := range h.Held {
			key := resource.Key{Kind: l.Kind, Namespace: l.Namespace, Name: l.Name}
			if l.Gone {
				lost = append(lost, key.String())
			} else {
				lost = append(lost, fmt.Sprintf("%s: %s", key, words.Count(l.Endpoints, "endpoint", "endpoints")))
			}
		}
		if h.More > 0 {
			lost = append(lost, fmt.Sprintf("and %d more", h.More))
		}
		t.section("lost", lost...)
		t.section("to let it go", "tributary guard release "+h.Source+" --hold "+h.ID)
	}
	return t.writeTo(w)
}

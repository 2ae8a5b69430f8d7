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
	"tributary/server/admin"
	"tributary/sources"
)

// Explain writes the explanation of a key or a host, which is the question.
func Explain(writer io.Writer, question string, explanation *admin.Explanation, now time.Time) error {
	report := &text{now: now}
	if len(explanation.Objects) == 0 {
		report.line("%s: %s", question, explanation.Why)
		report.section("warning", explanation.Warnings...)
		report.section("it was there", report.deletion(explanation.LastChange)...)
		excluded := words.Each(explanation.Excluded,
			func(excluded sources.Excluded) string { return excluded.Source + ": " + excluded.Place })
		report.section("left out by the transforms of its source", excluded...)
		report.section("left out", leftOut(explanation.LeftOut)...)
		report.section("similar", words.Each(explanation.Similar, similar)...)
		report.section("not readable", words.Each(explanation.PossibleDocuments,
			func(q admin.Quarantined) string { return q.Line() })...)
		return report.writeTo(writer)
	}
	if len(explanation.Objects) > 1 || len(explanation.Warnings) > 0 {
		report.line("%s: %s", question, explanation.Why)
		report.section("warning", explanation.Warnings...)
		report.line("")
	}
	if len(explanation.RequestTree) > 0 {
		report.line("%s\n", strings.Join(explanation.RequestTree, "\n"))
	}
	for index, object := range explanation.Objects {
		if index > 0 {
			report.line("")
		}
		report.object(object, explanation.NotReady)
	}
	if len(explanation.LeftOut) > 0 {
		report.line("")
		report.section("left out", leftOut(explanation.LeftOut)...)
	}
	report.generated(explanation.Translated)
	if slices.ContainsFunc(explanation.Objects, acknowledged) {
		report.line("\nAn acknowledgement proves arrival only. istiod also acknowledges objects that it then ignores.")
	}
	return report.writeTo(writer)
}

func (t *text) deletion(last *history.Entry) []string {
	if last == nil || last.Event != history.Deleted {
		return nil
	}
	period := "until " + t.timestamp(last.Time)
	if last.Unwatched {
		period = "before " + t.timestamp(last.Time) + ": it went while the server did not run"
	}
	if last.Source != "" {
		period += "; it came from " + strings.TrimSpace(last.Source+" "+singleLine(last.Place))
	}
	return []string{period, "last version: tributary history " + string(last.Kind) + " " + last.Key().FullName()}
}

func (t *text) object(explained admin.Explained, notReady bool) {
	t.line("%s", explained.Object.Key())
	if explained.Winner != nil {
		label := "served from"
		if notReady {
			label = "to serve from"
		}
		t.section(label, t.statement(*explained.Winner)...)
		t.section("because", strings.Split(explained.Why, "; ")...)
	} else {
		t.section("not served", explained.Why)
	}
	t.section("merged from", t.members(explained)...)
	t.section("endpoints", endpoints(explained)...)
	t.section("not used", t.losers(explained)...)
	t.section("quarantined", t.quarantined(explained.Quarantined)...)
	t.section("not certain", uncertain(explained)...)
	t.section("not read", remarks(explained.ReadErrors, "cannot read it now, and serves the previous version: ")...)
	t.section("warning", remarks(explained.Warnings, "")...)
	t.section("LEADS NOWHERE", explained.Unresolved...)
	t.section("for Envoys", explained.WithoutEffect...)
	t.section("REJECTED", t.rejected(explained.Rejected)...)
	t.section("held", t.held(explained.Held)...)
	t.section("conflict", conflicts(explained)...)
	t.section("clients", t.recipients(explained)...)
	t.section("content", contentLines(explained.Content)...)
}

const maxContent = 40

func contentLines(yaml string) []string {
	if yaml == "" {
		return nil
	}
	return firstLines(strings.Split(strings.TrimSpace(yaml), "\n"), maxContent,
		"… and %d more: tributary get KIND NAME -n NAMESPACE -o yaml", func(line string) string { return line })
}

// statement returns the place of an object in a source, and the changes by the source's transforms.
func (t *text) statement(statement aggregate.Statement) []string {
	line := statement.Source
	if statement.Place != "" {
		line += ": " + statement.Place
	}
	line += fmt.Sprintf("  [version %.8s", statement.Version)
	if statement.Created != nil {
		line += ", created " + t.timestamp(*statement.Created)
	}
	if statement.FirstSeen != nil {
		line += ", first seen " + t.timestamp(*statement.FirstSeen)
	}
	lines := []string{line + "]"}
	if statement.Transforms != "" {
		lines = append(lines, "  by the rules of "+statement.Source+": "+statement.Transforms)
	}
	if statement.Before != nil {
		for line := range strings.Lines(statement.Before.Diff) {
			lines = append(lines, "    "+strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func (t *text) losers(explained admin.Explained) (lines []string) {
	for _, shadowed := range explained.Shadowed {
		lines = append(lines, t.statement(shadowed)...)
	}
	if explained.Merged != nil {
		for _, member := range explained.Merged.Refused {
			lines = append(append(lines, t.statement(member.Statement)...), "  cannot be merged: "+member.Reason)
		}
	}
	for _, duplicate := range explained.Duplicates {
		for _, place := range duplicate.Losers {
			lines = append(lines, fmt.Sprintf("%s: %s  [%s has it already at %s]", duplicate.Source, place, duplicate.Source,
				duplicate.Winner))
		}
	}
	return lines
}

func (t *text) rejected(rejections []admin.Rejected) (lines []string) {
	for _, rejection := range rejections {
		lines = append(lines, fmt.Sprintf("%s, by %s since %s: %s", rejection.ResourceName(), admin.ClientName(rejection.Node,
			rejection.Peer), t.timestamp(rejection.Since), singleLine(rejection.Error)), "  "+rejection.Causes())
	}
	return lines
}

func (t *text) quarantined(objects []admin.Quarantined) (lines []string) {
	for _, object := range objects {
		lines = append(lines, object.Line())
		fallback := "no version is served"
		if object.LastGoodServes {
			fallback = "its last good version is served"
		} else if len(object.Keeps) > 0 {
			fallback = "served is " + object.Serves()
		}
		lines = append(lines, "  since "+t.timestamp(object.Since)+"; "+fallback)
	}
	return lines
}

func remarks(entries []admin.Remark, prefix string) []string {
	return words.Each(entries, func(remark admin.Remark) string {
		return remark.Source + ": " + prefix + strings.TrimPrefix(singleLine(remark.Text), remark.Source+": ")
	})
}

func uncertain(explained admin.Explained) []string {
	lines := remarks(explained.Unconfirmed, "has not confirmed all of it since: ")
	for _, object := range explained.Unsure {
		lines = append(lines, object.Source+" no longer has it, or has it in "+object.Group+
			", which cannot be read; it is served until then:", "  "+object.Line())
	}
	return lines
}

const maxLeftOut = 50

func leftOut(instances []sources.LeftOut) []string {
	return firstLines(instances, maxLeftOut, "and %d more; see -o json",
		func(instance sources.LeftOut) string { return instance.Source + ": " + singleLine(instance.String()) })
}

func (t *text) held(holds []admin.Held) (lines []string) {
	for _, hold := range holds {
		lines = append(lines, fmt.Sprintf("%s removed or shrank this; the change is on hold since %s", hold.Source,
			t.timestamp(hold.Begun)), "  why: "+singleLine(hold.Why))
		if hold.EndTime != nil {
			lines = append(lines, "  until: "+hold.EndTime.UTC().Format(time.RFC3339))
		}
		lines = append(lines, "  to let it through: tributary guard release "+hold.Source+" --hold "+hold.ID)
	}
	return lines
}

func conflicts(explained admin.Explained) (lines []string) {
	for _, conflict := range explained.Conflicts {
		var competitors []string
		for _, competitor := range conflict.Objects {
			if competitor != explained.Object {
				competitors = append(competitors, competitor.Key().String())
			}
		}
		lines = append(lines, fmt.Sprintf("on %s with %s", conflict.Subject, strings.Join(competitors, ", ")), "  "+
			conflict.Message)
	}
	return lines
}

const maxRecipients = 10

func (t *text) recipients(explained admin.Explained) (lines []string) {
	if len(explained.Recipients) == 0 {
		return []string{"no client asks for " + string(explained.Object.Kind)}
	}
	synced := 0
	for _, recipient := range explained.Recipients {
		if recipient.Synced && !recipient.Hidden {
			if synced++; synced > maxRecipients {
				continue
			}
		}
		lines = append(lines, admin.ClientName(recipient.Node, recipient.Peer)+": "+t.delivery(recipient))
	}
	if rest := synced - maxRecipients; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more that acknowledged the newest version", rest))
	}
	return lines
}

func (t *text) delivery(recipient admin.Recipient) string {
	switch {
	case recipient.Hidden:
		return "is not sent it, for its ISTIO_REVISION or NAMESPACES exclude it"
	case recipient.Sent == nil && recipient.Synced:
		return "came back with the newest version"
	case recipient.Sent == nil:
		return "has subscribed, and has no answer yet"
	case recipient.Nack != nil && recipient.Nack.Nonce == recipient.Sent.Nonce:
		return "REJECTED the version sent " + t.timestamp(recipient.Sent.Time) + ": " + singleLine(recipient.Nack.Error)
	case recipient.Synced && recipient.Acked != nil:
		delay := recipient.Acked.Time.Sub(recipient.Sent.Time).Round(time.Millisecond)
		return fmt.Sprintf("sent %s, acknowledged after %s: it has the newest version",
			t.timestamp(recipient.Sent.Time), delay)
	case recipient.Acked == nil:
		return "sent " + t.timestamp(recipient.Sent.Time) + ", no version acknowledged yet"
	case recipient.Acked.Nonce == recipient.Sent.Nonce:
		return "sent " + t.timestamp(recipient.Sent.Time) + ", acknowledged; a newer version is on its way"
	default:
		return "sent " + t.timestamp(recipient.Sent.Time) + ", not acknowledged; the last that it did was version " +
			cmp.Or(recipient.Acked.Version, "(none)") + ", " + t.timestamp(recipient.Acked.Time)
	}
}

// generated writes the progress of clients that receive generated xDS, and the commands that show more.
func (t *text) generated(clients *admin.Translated) {
	if clients == nil {
		return
	}
	t.line("\nEnvoy and gRPC clients receive generated xDS: %d of %d up to date:", clients.Synced, clients.Clients)
	for _, client := range clients.Listed {
		notes := words.Each(client.Rejects, func(reject admin.Reject) string {
			return "REJECTED " + reject.TypeURL + " " + t.timestamp(reject.Time) + ": " + singleLine(reject.Error)
		})
		if len(client.Behind) > 0 {
			notes = append(notes, "has yet to acknowledge the newest "+strings.Join(client.Behind, ", "))
		}
		if len(notes) == 0 {
			notes = []string{"has acknowledged all"}
		}
		t.line("  %s: %s", admin.ClientName(client.Node, client.Peer), strings.Join(notes, "; "))
	}
	if rest := clients.Clients - len(clients.Listed); rest > 0 {
		t.line("  and %d more; see /debug/clients", rest)
	}
	t.line("Resources of a client: tributary get clusters --node-id NODE. To check an Envoy: tributary verify --envoy " +
		"http://HOST:PORT.")
}

func acknowledged(explained admin.Explained) bool {
	return slices.ContainsFunc(explained.Recipients,
		func(recipient admin.Recipient) bool { return recipient.Acked != nil })
}

func similar(match admin.Similar) string {
	if match.Host != "" {
		return match.Host + ", in " + match.Key().String()
	}
	return match.Key().String()
}

func (t *text) members(explained admin.Explained) (lines []string) {
	if explained.Merged == nil {
		return nil
	}
	for _, member := range explained.Merged.Members {
		lines = append(lines, t.statement(member.Statement)...)
	}
	return lines
}

func endpoints(explained admin.Explained) (lines []string) {
	if explained.Merged == nil {
		return nil
	}
	for _, endpoint := range explained.Merged.Endpoints {
		ports := words.Each(slices.Sorted(maps.Keys(endpoint.Ports)),
			func(port uint32) string { return fmt.Sprintf("%d→%d", port, endpoint.Ports[port]) })
		line := strings.TrimRight(endpoint.Address+" "+strings.Join(ports, ","), " ")
		if endpoint.Locality != "" {
			line += " in " + endpoint.Locality
		}
		line += "  from " + endpoint.Source
		if len(endpoint.Also) > 0 {
			line += ", also in " + strings.Join(endpoint.Also, ", ")
		}
		if endpoint.Standby {
			line += "  [standby]"
		}
		lines = append(lines, line)
	}
	return lines
}

// Guard writes the changes on hold.
func Guard(writer io.Writer, guarded []admin.HeldSource, now time.Time) error {
	report := &text{now: now}
	if len(guarded) == 0 {
		report.line("nothing is held")
	}
	for i, hold := range guarded {
		if i > 0 {
			report.line("")
		}
		report.line("%s", hold.Source)
		report.section("held", words.Count(hold.Objects, "object", "objects")+" and "+
			words.Count(hold.Endpoints, "endpoint", "endpoints"))
		report.section("hold", hold.ID)
		report.section("since", report.timestamp(hold.Begun))
		if hold.EndTime != nil {
			report.section("until", hold.EndTime.UTC().Format(time.RFC3339))
		}
		report.section("why", singleLine(hold.Why))
		var changes []string
		for _, object := range hold.Held {
			change := object.Key().String()
			if !object.Missing {
				change += ": " + words.Count(object.Endpoints, "endpoint", "endpoints")
			}
			changes = append(changes, change)
		}
		if hold.FurtherLosses > 0 {
			changes = append(changes, fmt.Sprintf("and %d more", hold.FurtherLosses))
		}
		report.section("lost", changes...)
		report.section("to let it go", "tributary guard release "+hold.Source+" --hold "+hold.ID)
	}
	return report.writeTo(writer)
}

package page

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tributary/aggregate"
	"tributary/resource"
	"tributary/server/admin"
)

// Page is all that the template shows.
type Page struct {
	Version  string
	Host     string
	Revision string // of what is shown
	Started  time.Time
	Config   admin.ConfigStatus
	Verdict  Verdict
	Flow     Flow
	Sources  []Source
	Objects  Objects
	Detail   *Detail // of the object that is asked for
	Clients  Clients
	Status   admin.Status
	Pages    []admin.Page
	Shell    Shell

	Changes Changes
}

// Verdict is whether all is well, what is wrong, why, and what to do.
type Verdict struct {
	Class, Label    string
	Sentence, Cause string // the cause is empty if the sentence is short enough with it
	Link            string
	Troubles        []Trouble
}

// Trouble is something that is wrong.
type Trouble struct {
	Class, Text, Link, Do, Command string
}

// Source is a row of the sources.
type Source struct {
	admin.SourceState
	ID, Class, Note string
	Release         *Release
}

// Release is what there is to do about a loss that is held.
type Release struct {
	admin.Hold
	Action, Command string
	What            string
}

// Detail is what there is to say of one object.
type Detail struct {
	admin.Explained
	Name, Close     string
	Similar         []Link
	Excluded        []string
	Served          string // as YAML; empty if it is not
	Losers          []Loser
	JSON, Command   string
	History         string // JSON
	Past            string // the command
	Recipients      []admin.Recipient
	RecipientsCount int
}

// Loser is what a source says that does not win.
type Loser struct {
	aggregate.Statement
	Text string // as YAML
}

// Link leads to an object.
type Link struct{ Text, Href string }

// Shell writes commands that ask the servers of the page.
type Shell struct{ admin, xds string }

// shellFor returns a Shell for who asked for a host, of a program that serves xDS at an address.
func shellFor(host string, secure bool, xds string) Shell {
	s := Shell{admin: host}
	name, port, err := net.SplitHostPort(xds)
	switch {
	case strings.HasPrefix(xds, "unix://"):
		s.xds, _, _ = strings.Cut(xds, "?")
	case err == nil && port != "0":
		if ip := net.ParseIP(name); name == "" || ip != nil && ip.IsUnspecified() { // then by the host at which the page was found
			if name, _, err = net.SplitHostPort(host); err != nil {
				name = strings.Trim(host, "[]")
			}
		}
		s.xds = net.JoinHostPort(name, port)
	}
	if secure {
		s.admin = "https://" + host
	}
	return s
}

// Command is a command for a shell. What is in words is in quotes if a shell would read something into it.
func (s Shell) Command(words ...string) string {
	if len(words) == 0 {
		return ""
	}
	command := words[0]
	words = append([]string{"tributary"}, words...)
	if s.xds != "" && (command == "get" || command == "verify" && slices.Contains(words, "--istiod")) {
		words = append(words, "--server", s.xds)
	}
	if s.admin != "" && command != "get" && command != "validate" {
		words = append(words, "--admin", s.admin)
	}
	for i, w := range words {
		words[i] = quoted(w)
	}
	return strings.Join(words, " ")
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func verdictOf(st *admin.Status, q query, shell Shell) Verdict {
	v := st.Verdict()
	out := Verdict{Class: well, Label: "All is well", Sentence: strings.TrimPrefix(v.Sentence, "ok: ")}
	for _, t := range v.Troubles {
		one := Trouble{Class: severityOf(st, &t), Text: t.Text, Link: causeOf(&t, q), Do: t.Do, Command: shell.Command(t.Run...)}
		if severity(one.Class) < severity(out.Class) {
			out.Class = one.Class
		}
		out.Troubles = append(out.Troubles, one)
	}
	switch {
	case v.Well:
	case !v.Ready:
		out.Label = "Not ready"
	case out.Class == bad:
		out.Label = "Something is wrong"
	default:
		out.Label = "Needs a look"
	}
	if !v.Well {
		out.Sentence, out.Cause = headline(strings.TrimPrefix(v.Sentence, "not ready: ")) // which the label says
		out.Link = out.Troubles[0].Link
	}
	return out
}

// longestHeadline is how much is read at a glance, in bytes.
const longestHeadline = 70

// headline parts a long sentence at the last colon that leaves a headline.
func headline(sentence string) (head, cause string) {
	if len(sentence) <= longestHeadline {
		return sentence, ""
	}
	if i := strings.LastIndex(sentence[:longestHeadline], ": "); i > 0 {
		return sentence[:i], sentence[i+2:]
	}
	return sentence, ""
}

// severityOf is how a trouble is painted: what is served on as it was before is no more than a warning.
func severityOf(st *admin.Status, t *admin.Trouble) string {
	switch t.About {
	case admin.AboutQuarantine, admin.AboutConfig:
		return warns
	case admin.AboutReference, admin.AboutHistory:
		if t.Harm == admin.HarmOther {
			return warns
		}
	case admin.AboutSource:
		for i := range st.Sources {
			if st.Sources[i].Name == t.Source {
				return classOf(&st.Sources[i])
			}
		}
	}
	return bad
}

// causeOf is where on the page the cause of a trouble is.
func causeOf(t *admin.Trouble, q query) string {
	switch t.About {
	case admin.AboutSource:
		return "#" + sourceID(t.Source)
	case admin.AboutReadiness:
		return "#sources"
	case admin.AboutQuarantine:
		return q.showing(showQuarantined).link("objects")
	case admin.AboutReference:
		return q.showing(showUnresolved).link("objects")
	case admin.AboutObject:
		return q.of(*t.Object).link("object")
	case admin.AboutClient:
		return "#clients"
	}
	return "#program"
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// sourceID names the row of a source on the page.
func sourceID(name string) string {
	return "source-" + notInID.ReplaceAllStringFunc(name, func(c string) string { return fmt.Sprintf("_%x", c) })
}

func sourcesOf(st *admin.Status, shell Shell) (all []Source) {
	for i := range st.Sources {
		s := st.Sources[i]
		row := Source{SourceState: s, ID: sourceID(s.Name), Class: classOf(&s), Note: noteOf(&s)}
		if s.Hold != nil {
			row.Release = &Release{
				Hold: *s.Hold, Action: "/-/guard/release?" + url.Values{"source": {s.Name}, "hold": {s.Hold.ID}, "by": {"the page"}}.Encode(),
				Command: shell.Command("guard", "release", s.Name, "--hold", s.Hold.ID),
				What:    s.Hold.Loss(),
			}
		}
		all = append(all, row)
	}
	return all
}

// maxRecipients is how many clients are named of an object.
const maxRecipients = 20

// detailOf shows an object that is asked for; losers are what the sources say that do not win it.
func detailOf(e *admin.Explanation, served *resource.Resource, losers []aggregate.Candidate, q query, shell Shell) *Detail {
	key := q.object
	of := url.Values{"kind": {string(key.Kind)}, "namespace": {key.Namespace}, "name": {key.Name}}
	d := &Detail{
		Name: key.String(), Close: q.of(resource.Key{}).link("objects"),
		JSON:    "/debug/explain?" + of.Encode(),
		Command: shell.Command("explain", string(key.Kind), key.FullName()),
		Past:    shell.Command("history", string(key.Kind), key.FullName()),
	}
	of.Set("details", "true")
	d.History = "/debug/history?" + of.Encode()
	d.Why = e.Why
	if len(e.Objects) > 0 {
		d.Explained = e.Objects[0]
	}
	d.Recipients, d.RecipientsCount = d.Explained.Recipients, len(d.Explained.Recipients)
	d.Recipients = d.Recipients[:min(len(d.Recipients), maxRecipients)]
	for _, s := range e.Similar {
		to := resource.Key(s.Ref)
		d.Similar = append(d.Similar, Link{to.String(), q.of(to).link("object")})
	}
	for _, x := range e.Excluded {
		d.Excluded = append(d.Excluded, x.Source+": "+x.Place)
	}
	d.Served = text(served)
	for _, statement := range d.Shadowed {
		l := Loser{Statement: statement}
		for _, c := range losers {
			if c.Source == statement.Source && c.Resource.Version() == statement.Version {
				l.Text = text(c.Resource)
			}
		}
		d.Losers = append(d.Losers, l)
	}
	return d
}

// longestText is as much of an object as is shown.
const longestText = 64 << 10

// text is an object as a file has it; empty if there is none.
func text(r *resource.Resource) string {
	if r == nil {
		return ""
	}
	yaml, err := resource.MarshalYAML(r)
	if err != nil {
		return "# it cannot be shown: " + err.Error()
	}
	if len(yaml) > longestText {
		return strings.ToValidUTF8(string(yaml[:longestText]), "") + "\n# and so on: see the command below"
	}
	return string(yaml)
}

// DiffLine is one of a unified difference.
type DiffLine struct{ Class, Text string }

// longestDiff is of how many lines a difference is shown.
const longestDiff = 2000

// linesOf tells apart what goes and what comes.
func linesOf(diff string) (all []DiffLine) {
	for line := range strings.Lines(diff) {
		if len(all) == longestDiff {
			return append(all, DiffLine{"at", "and more\n"})
		}
		class := ""
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "@@"):
			class = "at"
		case strings.HasPrefix(line, "-"):
			class = "del"
		case strings.HasPrefix(line, "+"):
			class = "ins"
		}
		all = append(all, DiffLine{class, line})
	}
	return all
}

// Title is what the browser's tab says.
func (p *Page) Title() string {
	return map[string]string{well: "✓", warns: "!", bad: "✗"}[p.Verdict.Class] + " " + cmp.Or(p.Host, "tributary") + " · tributary"
}

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

// Page is the data of the template.
type Page struct {
	Version  string
	Host     string
	Revision string // that of programState
	Started  time.Time
	Verdict  Verdict
	Diagram  Diagram
	Sources  []Source
	Objects  Objects
	Detail   *Detail // nil if the query names no object
	Clients  Clients
	Status   admin.Status
	Pages    []admin.Page
	Shell    Shell
	Changes  Changes

	query pageQuery
}

// ObjectLink returns the address of the page with the panel of an object.
func (p *Page) ObjectLink(key resource.Key) string { return p.query.withObject(key).link("object") }

// Verdict summarizes the state of the program and its troubles.
type Verdict struct {
	Class, Label    string
	Sentence, Cause string // a short sentence has its cause, so that Cause is empty
	Link            string
	Troubles        []Trouble
}

// Trouble is a problem with advice.
type Trouble struct {
	admin.Trouble
	Class, Link, Command string
}

// Source is a row of the sources.
type Source struct {
	admin.SourceState
	ID, Class, Note  string
	Release, Command string // the address and the command that release the held loss
}

// Detail is the panel of one object.
type Detail struct {
	admin.Explained
	Key    resource.Key
	Close  string
	Answer *admin.Explanation
	Served string // YAML of the served object; empty if none is served
	Losers []Loser
}

// Loser is a source's object that another source shadows.
type Loser struct {
	aggregate.Statement
	Text string // in YAML
}

// Shell writes commands that ask the servers that the reader sees.
type Shell struct {
	admin string // the address of the admin server
	xds   string // the address of the xDS server; empty if it is unknown
}

// newShell returns a Shell for a reader that reached the page at a host, by HTTPS if isHTTPS is set. The xDS address is
// that which the program listens on.
func newShell(host string, isHTTPS bool, xdsAddress string) Shell {
	shell := Shell{admin: host}
	name, port, err := net.SplitHostPort(xdsAddress)
	switch {
	case strings.HasPrefix(xdsAddress, "unix://"):
		shell.xds, _, _ = strings.Cut(xdsAddress, "?")
	case err == nil && port != "0":
		// A server on all addresses is reached at the host of the page.
		if ip := net.ParseIP(name); name == "" || ip != nil && ip.IsUnspecified() {
			if name, _, err = net.SplitHostPort(host); err != nil {
				name = strings.Trim(host, "[]")
			}
		}
		shell.xds = net.JoinHostPort(name, port)
	}
	if isHTTPS {
		shell.admin = "https://" + host
	}
	return shell
}

// Command returns a command line with the address of the server that it asks. It quotes words for a shell.
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
	for index, word := range words {
		words[index] = quoteWord(word)
	}
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

func quoteWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// newVerdict returns the verdict with links and command lines.
func newVerdict(status *admin.Status, query pageQuery, shell Shell) Verdict {
	verdict := status.Verdict()
	page := Verdict{Class: classOK, Label: "All is well", Sentence: strings.TrimPrefix(verdict.Sentence, "ok: ")}
	for _, problem := range verdict.Troubles {
		trouble := Trouble{
			problem, troubleClass(status, &problem), troubleLink(&problem, query), shell.Command(problem.Arguments...),
		}
		if severity(trouble.Class) < severity(page.Class) {
			page.Class = trouble.Class
		}
		page.Troubles = append(page.Troubles, trouble)
	}
	switch {
	case verdict.Well:
	case !verdict.Ready:
		page.Label = "Not ready"
	case page.Class == classBad:
		page.Label = "Something is wrong"
	default:
		page.Label = "Needs a look"
	}
	if !verdict.Well {
		page.Sentence, page.Cause = headline(strings.TrimPrefix(verdict.Sentence, "not ready: ")) // the label says so
		page.Link = page.Troubles[0].Link
	}
	return page
}

// maxHeadlineBytes is the length of a headline in bytes.
const maxHeadlineBytes = 70

// headline splits a long sentence at the last colon within a headline.
func headline(sentence string) (head, cause string) {
	if len(sentence) <= maxHeadlineBytes {
		return sentence, ""
	}
	if index := strings.LastIndex(sentence[:maxHeadlineBytes], ": "); index > 0 {
		return sentence[:index], sentence[index+2:]
	}
	return sentence, ""
}

// troubleClass returns the class of a trouble. As long as the previous objects are served, it is a warning.
func troubleClass(status *admin.Status, trouble *admin.Trouble) string {
	switch trouble.Area {
	case admin.AreaQuarantine, admin.AreaConfig:
		return classWarning
	case admin.AreaReference, admin.AreaHistory:
		if trouble.Harm == admin.HarmOther {
			return classWarning
		}
	case admin.AreaSource:
		for index := range status.Sources {
			if status.Sources[index].Name == trouble.Source {
				return sourceClass(&status.Sources[index])
			}
		}
	}
	return classBad
}

// troubleLink returns the link to the cause of a trouble.
func troubleLink(trouble *admin.Trouble, query pageQuery) string {
	switch trouble.Area {
	case admin.AreaSource:
		return "#" + sourceID(trouble.Source)
	case admin.AreaReadiness:
		return "#sources"
	case admin.AreaQuarantine:
		return query.withTab(showQuarantined).link("objects")
	case admin.AreaReference:
		return query.withTab(showUnresolved).link("objects")
	case admin.AreaObject:
		return query.withObject(*trouble.Object).link("object")
	case admin.AreaClient:
		return "#clients"
	}
	return "#program"
}

var invalidIDChar = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// sourceID returns the HTML ID of a source.
func sourceID(name string) string {
	return "source-" + invalidIDChar.ReplaceAllStringFunc(name,
		func(character string) string { return fmt.Sprintf("_%x", character) })
}

func sourceRows(status *admin.Status, shell Shell) (rows []Source) {
	for _, source := range status.Sources {
		row := Source{SourceState: source, ID: sourceID(source.Name), Class: sourceClass(&source), Note: sourceNote(&source)}
		if source.Hold != nil {
			row.Release = "/-/guard/release?" +
				url.Values{"source": {source.Name}, "hold": {source.Hold.ID}, "by": {"the page"}}.Encode()
			row.Command = shell.Command("guard", "release", source.Name, "--hold", source.Hold.ID)
		}
		rows = append(rows, row)
	}
	return rows
}

// newDetail returns the panel of the requested object. The losers are the objects of shadowed sources with its key.
func newDetail(
	explanation *admin.Explanation, served *resource.Resource, losers []aggregate.Candidate, q pageQuery,
) *Detail {
	detail := &Detail{
		Key: q.object, Close: q.withObject(resource.Key{}).link("objects"), Answer: explanation, Served: objectText(served),
	}
	detail.Why = strings.Join(append([]string{explanation.Why}, explanation.Warnings...), "; ")
	if len(explanation.Objects) > 0 {
		detail.Explained = explanation.Objects[0]
	}
	for _, statement := range detail.Shadowed {
		loser := Loser{Statement: statement}
		for _, candidate := range losers {
			if candidate.Source == statement.Source && candidate.Resource.Version() == statement.Version {
				loser.Text = objectText(candidate.Resource)
			}
		}
		detail.Losers = append(detail.Losers, loser)
	}
	return detail
}

// maxObjectBytes limits the shown text of an object.
const maxObjectBytes = 64 << 10

// objectText returns an object in YAML, or an empty text for nil.
func objectText(object *resource.Resource) string {
	if object == nil {
		return ""
	}
	yaml, err := resource.MarshalYAML(object)
	if err != nil {
		return "# it cannot be shown: " + err.Error()
	}
	if len(yaml) > maxObjectBytes {
		return strings.ToValidUTF8(string(yaml[:maxObjectBytes]), "") + "\n# and so on: see the command below"
	}
	return string(yaml)
}

// DiffLine is a line of a unified diff.
type DiffLine struct{ Class, Text string }

// maxDiffLines limits the shown lines of a diff.
const maxDiffLines = 2000

// diffLines splits a diff into lines with their classes.
func diffLines(diff string) (lines []DiffLine) {
	for line := range strings.Lines(diff) {
		if len(lines) == maxDiffLines {
			return append(lines, DiffLine{"at", "and more\n"})
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
		lines = append(lines, DiffLine{class, line})
	}
	return lines
}

// Title is the text of the browser's tab.
func (p *Page) Title() string {
	symbols := map[string]string{classOK: "✓", classWarning: "!", classBad: "✗"}
	return symbols[p.Verdict.Class] + " " + cmp.Or(p.Host, "tributary") + " · tributary"
}

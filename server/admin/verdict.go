package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/resource"
)

// Where the cause of a trouble is to be looked for.
const (
	AboutReadiness    = "readiness"
	AboutConfig       = "config"
	AboutSource       = "source"
	AboutQuarantine   = "quarantine"
	AboutObject       = "object"
	AboutReference    = "reference"
	AboutCertificates = "certificates"
	AboutClient       = "client"
	AboutHistory      = "history"
)

// Trouble is something that somebody should do something about.
type Trouble struct {
	Text   string        // what is wrong, in one line
	About  string        // where to look: one of the constants
	Source string        // the name, if it is about one
	Object *resource.Key // if it is about one
	Harm   Harm
	Do     string   // what to do, in a sentence
	Run    []string // the command that does it, or that tells more, without its flags that say which server
}

// Harm says how a trouble harms clients, the worst first.
type Harm int

// The harms.
const (
	HarmRefused Harm = iota // requests or connections fail
	HarmFrozen              // clients keep an older version of some objects
	HarmHeld                // a loss is held
	HarmStale               // a source cannot be read
	HarmOther
)

// Verdict is whether all is well.
type Verdict struct {
	Well     bool
	Ready    bool
	Sentence string // says it all; of several troubles, the first and how many more there are
	Troubles []Trouble
}

// Verdict says whether all is well.
func (st *Status) Verdict() Verdict {
	v := Verdict{Ready: len(st.Missing) == 0, Troubles: st.Troubles()}
	switch n := len(v.Troubles); n {
	case 0:
		v.Well = true
		v.Sentence = fmt.Sprintf("ok: %s, %s, %s", words.Count(len(st.Sources), "source", "sources"),
			words.Count(st.Objects, "object", "objects"), words.Count(len(st.Clients), "client", "clients"))
	case 1:
		v.Sentence = v.Troubles[0].Text
	default:
		v.Sentence = fmt.Sprintf("%s; and %d more", v.Troubles[0].Text, n-1)
	}
	return v
}

// Troubles are what somebody should do something about, what is worst first; none if all is well.
func (st *Status) Troubles() []Trouble {
	var all troubles
	st.ofReadiness(&all)
	st.addObjectProblems(&all)
	for i := range st.Sources {
		st.ofSource(&all, &st.Sources[i])
		st.ofDuplicates(&all, &st.Sources[i])
	}
	st.ofQuarantine(&all)
	for _, r := range st.Rejected {
		t := Trouble{
			About: AboutClient, Harm: HarmFrozen, Run: []string{"status"},
			Do: "The client keeps the version that it accepted before; others are not affected. Fix the object.",
		}
		if len(r.Changed) == 1 {
			key := r.Changed[0].Key()
			t.Object, t.Run = &key, []string{"explain", string(key.Kind), key.FullName()}
		}
		if r.UnenforcedNode != "" {
			t.Harm = HarmRefused
		}
		others := ""
		if r.Clients > 1 {
			others = fmt.Sprintf(" and %d more", r.Clients-1)
		}
		all.add(t, "%s%s rejects %s: %s; %s", ClientName(r.Node, r.Peer), others, r.What(), r.Error, r.Causes())
	}
	if st.RejectedMore > 0 {
		all.add(Trouble{
			About: AboutClient, Harm: HarmFrozen, Do: "Fix the objects of the listed ones first.", Run: []string{"status"},
		},
			"clients reject %s that are not listed", words.Count(st.RejectedMore, "more resource", "more resources"))
	}
	st.ofUnenforced(&all)
	st.ofCertificates(&all)
	if st.History != nil && st.History.Error != "" {
		all.add(Trouble{
			About: AboutHistory, Harm: HarmOther, Run: []string{"status"},
			Do: "Clients are not affected, but changes are not remembered. Look at the disk of the state directory.",
		}, "the history cannot be written: %s", st.History.Error)
	}
	slices.SortStableFunc(all, func(a, b Trouble) int { return cmp.Compare(a.Harm, b.Harm) })
	return all
}

func (st *Status) ofReadiness(all *troubles) {
	for _, missing := range st.Missing {
		all.add(Trouble{
			About: AboutReadiness, Do: "Nothing is sent until all sources are read; clients keep what they have.", Run: []string{"status"},
		}, "not ready: %s", missing)
	}
	if st.Config.Failed != nil {
		all.add(Trouble{
			About: AboutConfig, Harm: HarmFrozen,
			Do:  "The previous configuration is in force. Correct the file, then run tributary reload.",
			Run: []string{"validate", "-c", cmp.Or(st.Config.File, "FILE")},
		}, "the configuration file is refused: %s", st.Config.Error)
	}
}

// sourceAdvice says what to do about a source, by its state and the reason.
func sourceAdvice(s *SourceState) string {
	advice := "Its previous objects are still served."
	if !s.Synced && s.Objects == 0 {
		advice = "It was never read: no object of it is served."
	}
	address := cmp.Or(s.Address, "it")
	switch s.State {
	case "unreachable":
		return advice + " Check whether " + address + " can be reached from this machine."
	case "denied":
		return advice + " Check the token, certificate or permissions for " + address + " in the configuration."
	case "degraded":
		if s.Hold != nil || strings.Contains(s.Message, "lost its data") {
			return advice + " Check whether " + address + " lost its data, and restore it. Its objects stay until " +
				"they are back, or until the hold ends."
		}
		return "Its readable part is up to date; the rest is served as it was. Correct the cause in the message."
	}
	return advice
}

// ofSource describes the state, the hold and the storage of a source.
func (st *Status) ofSource(all *troubles, s *SourceState) {
	about := Trouble{About: AboutSource, Source: s.Name, Run: []string{"status"}}
	if s.State != "healthy" && len(st.Missing) == 0 {
		about.Harm, about.Do = HarmStale, sourceAdvice(s)
		text := fmt.Sprintf("source %s is %s: %s", s.Name, s.State, s.Message)
		if s.Unconfirmed > 0 {
			text += fmt.Sprintf("; %s without confirmation", words.Count(s.Unconfirmed, "item is kept", "items are kept"))
			if s.UnconfirmedUntil != nil {
				text += " until " + s.UnconfirmedUntil.UTC().Format(time.RFC3339)
			}
		}
		all.add(about, "%s", text)
	}
	if h := s.Hold; h != nil {
		about.Harm = HarmHeld
		about.Do = "The previous objects are still served. If they are gone for good, release the hold; if not, bring them back, " +
			"and the hold ends by itself."
		about.Run = []string{"guard", "release", s.Name, "--hold", h.ID}
		all.add(about, "source %s lost %s, which are held: %s", s.Name, h.Loss(), h.Why)
	}
	if s.NotKept != "" {
		about.Harm = HarmOther
		about.Do = "A restart while the source is away would begin without it. Look at the disk of the state directory."
		about.Run = []string{"status"}
		all.add(about, "source %s is not kept on disk: %s", s.Name, s.NotKept)
	}
}

// Loss counts the lost objects and endpoints.
func (h *Hold) Loss() string {
	endpoints := words.Count(h.Endpoints, "endpoint", "endpoints")
	switch {
	case h.Endpoints == 0:
		return words.Count(h.Objects, "object", "objects")
	case h.Objects == 0:
		return endpoints
	}
	return words.Count(h.Objects, "object", "objects") + " and " + endpoints
}

func (st *Status) ofQuarantine(all *troubles) {
	if st.Quarantined == 0 {
		return
	}
	t := Trouble{About: AboutQuarantine, Harm: HarmFrozen, Do: "Fix each object at the location shown."}
	var said []string
	for _, q := range st.Invalid {
		said = append(said, q.Said())
		if key := q.Key(); key.Name != "" && t.Run == nil {
			t.Run = []string{"explain", string(key.Kind), key.FullName()}
		}
	}
	if more := st.Quarantined - len(said); more > 0 && len(said) > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	if t.Run == nil {
		t.Run = []string{"status"}
	}
	text := words.Count(st.Quarantined, "object is", "objects are") + " not valid, and quarantined"
	if len(said) > 0 {
		text += ": " + strings.Join(said, "; ")
	}
	all.add(t, "%s", text)
}

func (st *Status) ofUnenforced(all *troubles) {
	if st.Unenforced == 0 {
		return
	}
	key := st.NotEnforced[0].Key()
	text := words.Count(st.Unenforced, "security object is", "security objects are") + " not enforced on Envoys and gRPC clients: "
	var names []string
	for _, o := range st.NotEnforced {
		name := o.Key().String()
		if o.Why != "" {
			name += " (" + o.Why + ")"
		}
		names = append(names, name)
	}
	if more := st.Unenforced - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	all.add(Trouble{
		About: AboutObject, Object: &key,
		Do: "Give these clients inbound listeners or an identity, or enforce the rules in the services. If that is done, set " +
			"envoy: {unenforced: warn}.",
		Run: []string{"explain", string(key.Kind), key.FullName()},
	}, "%s%s", text, strings.Join(names, ", "))
}

func (st *Status) ofDuplicates(all *troubles, s *SourceState) {
	for _, c := range s.Duplicates {
		key := c.Key()
		all.add(Trouble{
			About: AboutObject, Object: &key, Source: s.Name, Harm: HarmOther,
			Do:  "One of them is served, and the others are not: leave one.",
			Run: []string{"explain", string(key.Kind), key.FullName()},
		}, "source %s has %s more than once: that at %s is served, and not that at %s", s.Name, key, c.Winner,
			strings.Join(c.Losers[:min(len(c.Losers), maxListed)], ", "))
	}
}

func (st *Status) ofCertificates(all *troubles) {
	for _, c := range st.Certificates {
		about := Trouble{
			About: AboutCertificates, Do: "Put the new certificate and its key in place; they are looked at every second.",
			Run: []string{"status"},
		}
		if about.Harm = HarmOther; c.Trouble != "" {
			about.Harm = HarmFrozen
		}
		if c.Expired || c.NotAfter.IsZero() {
			about.Harm = HarmRefused
		}
		if c.Expired {
			all.add(about, "the certificate of %s has expired", c.Listener)
		}
		if c.Soon {
			all.add(about, "the certificate of %s expires at %s", c.Listener, c.NotAfter.UTC().Format(time.RFC3339))
		}
		if c.Trouble != "" {
			all.add(about, "the certificate of %s is not in force: %s", c.Listener, c.Trouble)
		}
	}
}

type troubles []Trouble

// add adds t with a text in one line, whatever is in its arguments.
func (all *troubles) add(t Trouble, format string, args ...any) {
	t.Text = strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	*all = append(*all, t)
}

// ClientName names a client: its node id need be neither there nor unique.
func ClientName(node, peer string) string { return cmp.Or(node, "(no node id)") + " at " + peer }

package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources/derive"
)

// The places of causes.
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

// Trouble is a problem that needs an action.
type Trouble struct {
	Text   string        // the problem, in one line
	About  string        // the place of the cause: one of the constants
	Source string        // the name of the source, if there is one
	Object *resource.Key // the object, if there is one
	Harm   Harm
	Do     string   // the action, in a sentence
	Run    []string // the command that does it, or that shows more, without the flags of the server
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

// Verdict is the summary of a status.
type Verdict struct {
	Well     bool
	Ready    bool
	Sentence string // the first trouble and the number of others, or the numbers of sources, objects and clients
	Troubles []Trouble
}

// Verdict summarizes the status.
func (st *Status) Verdict() Verdict {
	verdict := Verdict{Ready: len(st.Missing) == 0, Troubles: st.Troubles()}
	switch count := len(verdict.Troubles); count {
	case 0:
		verdict.Well = true
		verdict.Sentence = fmt.Sprintf("ok: %s, %s, %s", words.Count(len(st.Sources), "source", "sources"),
			words.Count(st.Objects, "object", "objects"), words.Count(len(st.Clients), "client", "clients"))
	case 1:
		verdict.Sentence = verdict.Troubles[0].Text
	default:
		verdict.Sentence = fmt.Sprintf("%s; and %d more", verdict.Troubles[0].Text, count-1)
	}
	return verdict
}

// troubles collects troubles.
type troubles []*Trouble

// add adds a trouble with a text in one line. The command is tributary status.
func (t *troubles) add(about string, harm Harm, advice, format string, args ...any) *Trouble {
	trouble := &Trouble{
		Text:  strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "),
		About: about, Harm: harm, Do: advice, Run: []string{"status"},
	}
	*t = append(*t, trouble)
	return trouble
}

// explain makes the trouble one of an object.
func (t *Trouble) explain(key resource.Key) *Trouble {
	t.Object, t.Run = &key, []string{"explain", string(key.Kind), key.FullName()}
	return t
}

// Troubles returns the troubles, the worst first.
func (st *Status) Troubles() (sorted []Trouble) {
	var list troubles
	for _, missing := range st.Missing {
		list.add(AboutReadiness, HarmRefused, "Clients get no configuration until all sources are read; they keep their own.",
			"not ready: %s", missing)
	}
	if st.Config.Failed != nil {
		list.add(AboutConfig, HarmFrozen,
			"The previous configuration is in force. Correct the file, then run tributary reload.",
			"the configuration file is refused: %s", st.Config.Error).
			Run = []string{"validate", "-c", cmp.Or(st.Config.File, "FILE")}
	}
	st.addObjectProblems(&list)
	for i := range st.Sources {
		st.addSource(&list, &st.Sources[i])
	}
	st.addQuarantine(&list)
	st.addRejected(&list)
	if st.Unenforced > 0 {
		names := make([]string, len(st.NotEnforced))
		for i, object := range st.NotEnforced {
			if names[i] = object.Key().String(); object.Why != "" {
				names[i] += " (" + object.Why + ")"
			}
		}
		list.add(AboutObject, HarmRefused,
			"Give these clients inbound listeners or an identity, or enforce the rules in the services. If that is done, set "+
				"envoy: {unenforced: warn}.",
			"%s not enforced on Envoys and gRPC clients: %s",
			words.Count(st.Unenforced, "security object is", "security objects are"), listed(names, st.Unenforced, ", ")).
			explain(st.NotEnforced[0].Key())
	}
	st.addCertificates(&list)
	if st.History != nil && st.History.Error != "" {
		list.add(AboutHistory, HarmOther,
			"Clients are not affected, but changes are not remembered. Look at the disk of the state directory.",
			"the history cannot be written: %s", st.History.Error)
	}
	slices.SortStableFunc(list, func(a, b *Trouble) int { return cmp.Compare(a.Harm, b.Harm) })
	for _, trouble := range list {
		sorted = append(sorted, *trouble)
	}
	return sorted
}

// listed joins texts, and counts those of the total that are missing.
func listed(texts []string, total int, separator string) string {
	if unlisted := total - len(texts); unlisted > 0 {
		texts = append(slices.Clip(texts), fmt.Sprintf("and %d more", unlisted))
	}
	return strings.Join(texts, separator)
}

// sourceAdvice is the advice about a source that is not healthy.
func sourceAdvice(source *SourceState) string {
	advice := "Its previous objects are still served."
	if !source.Synced && source.Objects == 0 {
		advice = "It was never read: no object of it is served."
	}
	address := cmp.Or(source.Address, "it")
	switch source.State {
	case "unreachable":
		return advice + " Check whether " + address + " can be reached from this machine."
	case "denied":
		if strings.Contains(source.Message, "a loop: ") {
			return advice + " Remove the source here, or the one there."
		}
		return advice + " Check the token, certificate or permissions for " + address + " in the configuration."
	case "degraded":
		if source.Hold != nil || strings.Contains(source.Message, "lost its data") {
			return advice + " Check whether " + address + " lost its data, and restore it. Its objects stay until " +
				"they are back, or until the hold ends."
		}
		return "Its readable part is up to date; the rest is served as it was. Correct the cause in the message."
	}
	return advice
}

// addSource adds the state, the hold, the storage and the duplicates of a source.
func (st *Status) addSource(list *troubles, source *SourceState) {
	if source.State != "healthy" && len(st.Missing) == 0 {
		text := ""
		if source.Unconfirmed > 0 {
			text = fmt.Sprintf("; %s without confirmation", words.Count(source.Unconfirmed, "item is kept", "items are kept"))
			if source.UnconfirmedUntil != nil {
				text += " until " + source.UnconfirmedUntil.UTC().Format(time.RFC3339)
			}
		}
		list.add(AboutSource, HarmStale, sourceAdvice(source),
			"source %s is %s: %s%s", source.Name, source.State, source.Message, text).Source = source.Name
	}
	if hold := source.Hold; hold != nil {
		ends := ""
		if hold.EndTime != nil {
			ends = " Without either, it ends at " + hold.EndTime.UTC().Format(time.RFC3339) + "."
		}
		trouble := list.add(AboutSource, HarmHeld,
			"The previous objects are still served. If they are gone for good, release the hold; if not, bring them back, "+
				"and the hold ends by itself."+ends,
			"source %s lost %s, which are held: %s", source.Name, hold.Loss(), hold.Why)
		trouble.Source, trouble.Run = source.Name, []string{"guard", "release", source.Name, "--hold", hold.ID}
	}
	if source.NotKept != "" {
		list.add(AboutSource, HarmOther,
			"A restart while the source is away would begin without it. Look at the disk of the state directory.",
			"source %s is not kept on disk: %s", source.Name, source.NotKept).Source = source.Name
	}
	for _, duplicate := range source.Duplicates {
		list.add(AboutObject, HarmOther, "One of them is served, and the others are not: leave one.",
			"source %s has %s more than once: that at %s is served, and not that at %s", source.Name, duplicate.Key(),
			duplicate.Winner, strings.Join(duplicate.Losers[:min(len(duplicate.Losers), maxListed)], ", ")).
			explain(duplicate.Key()).Source = source.Name
	}
}

func (st *Status) addQuarantine(list *troubles) {
	if st.Quarantined == 0 {
		return
	}
	text := words.Count(st.Quarantined, "object is", "objects are") + " not valid, and quarantined"
	if len(st.Invalid) > 0 {
		reasons := words.Each(st.Invalid, func(invalid Quarantined) string { return invalid.Said() })
		text += ": " + listed(reasons, st.Quarantined, "; ")
	}
	trouble := list.add(AboutQuarantine, HarmFrozen, "Fix each object at the location shown.", "%s", text)
	if i := slices.IndexFunc(st.Invalid, explicable); i >= 0 {
		trouble.explain(st.Invalid[i].Key()).Object = nil // it is one of several
	} else if len(st.Invalid) > 0 {
		first := st.Invalid[0]
		trouble.Do = fmt.Sprintf("Fix each object at the location shown: %s of %s.", first.Place, first.Source)
	}
}

// explicable reports whether explain takes the kind and the name of an invalid object.
func explicable(invalid Quarantined) bool {
	schema, exists := resource.SchemaByName(string(invalid.Kind))
	_, derives := derive.KindNamed(string(invalid.Kind))
	return invalid.Name != "" && (derives || exists && schema.Kind == invalid.Kind)
}

func (st *Status) addRejected(list *troubles) {
	for _, rejected := range st.Rejected {
		harm, subject := HarmFrozen, ClientName(rejected.Node, rejected.Peer)+" rejects"
		if rejected.UnenforcedNode != "" || rejected.Acked == "" && rejected.Fallback == "" {
			harm = HarmRefused
		}
		if rejected.Clients > 1 {
			subject = fmt.Sprintf("%s and %d more reject", ClientName(rejected.Node, rejected.Peer), rejected.Clients-1)
		}
		trouble := list.add(AboutClient, harm,
			"The client has its accepted version, or none. Fix the object; or the machine, then tributary client kick NODE.",
			"%s %s: %s; %s", subject, rejected.What(), rejected.Error, rejected.Causes())
		if len(rejected.Changed) == 1 {
			trouble.explain(rejected.Changed[0].Key())
		}
	}
	if st.RejectedMore > 0 {
		list.add(AboutClient, HarmFrozen, "Fix the objects of the listed ones first.",
			"clients reject %s that are not listed", words.Count(st.RejectedMore, "more resource", "more resources"))
	}
}

func (st *Status) addCertificates(list *troubles) {
	for _, certificate := range st.Certificates {
		harm := HarmOther
		switch {
		case certificate.Expired || certificate.NotAfter.IsZero():
			harm = HarmRefused
		case certificate.Trouble != "":
			harm = HarmFrozen
		}
		addTrouble := func(format string, args ...any) {
			list.add(AboutCertificates, harm, "Put the new certificate and its key in place; they are looked at every second.",
				"the certificate of %s %s", certificate.Listener, fmt.Sprintf(format, args...))
		}
		if certificate.Expired {
			addTrouble("has expired")
		}
		if certificate.Soon {
			addTrouble("expires at %s", certificate.NotAfter.UTC().Format(time.RFC3339))
		}
		if certificate.Trouble != "" {
			addTrouble("is not in force: %s", certificate.Trouble)
		}
	}
}

// ClientName names a client. The node ID may be missing, and need not be unique.
func ClientName(node, peer string) string { return cmp.Or(node, "(no node id)") + " at " + peer }

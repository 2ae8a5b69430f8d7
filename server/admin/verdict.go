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

// The areas of troubles: the part of the status, and of the dashboard, that shows the cause.
const (
	AreaReadiness    = "readiness"
	AreaConfig       = "config"
	AreaSource       = "source"
	AreaQuarantine   = "quarantine"
	AreaObject       = "object"
	AreaReference    = "reference"
	AreaCertificates = "certificates"
	AreaClient       = "client"
	AreaHistory      = "history"
)

// Trouble is a problem that needs an action.
type Trouble struct {
	Text   string        // the problem in one line
	Area   string        // one of the constants
	Source string        // the name of the source, if it is about one
	Object *resource.Key // the object, if it is about one
	Harm   Harm
	Advice string // the action in a sentence
	// Arguments are those of the tributary command that takes the action or shows more, without the server's address.
	Arguments []string
}

// Harm is the harm of a trouble to clients. Lower values are worse.
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
	Sentence string // the worst trouble and the number of the others; if there is none, numbers of sources and objects
	Troubles []Trouble
}

// Verdict summarizes the status.
func (st *Status) Verdict() Verdict {
	verdict := Verdict{Ready: len(st.Obstacles) == 0, Troubles: st.Troubles()}
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

// troubles is a list of troubles that grows.
type troubles []*Trouble

// add adds a trouble with the command tributary status, and returns it. It puts the text in one line.
func (t *troubles) add(area string, harm Harm, advice, format string, args ...any) *Trouble {
	trouble := &Trouble{
		Text: strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "),
		Area: area, Harm: harm, Advice: advice, Arguments: []string{"status"},
	}
	*t = append(*t, trouble)
	return trouble
}

// setObject makes the trouble one of an object. Its command explains the object.
func (t *Trouble) setObject(key resource.Key) *Trouble {
	t.Object = &key
	t.Arguments = []string{"explain", string(key.Kind), key.FullName()}
	return t
}

// Troubles returns the troubles of the status, the worst first.
func (st *Status) Troubles() (sorted []Trouble) {
	var list troubles
	for _, missing := range st.Obstacles {
		list.add(AreaReadiness, HarmRefused, "Clients get no configuration until all sources are read; they keep their own.",
			"not ready: %s", missing)
	}
	if st.Config.Failed != nil {
		list.add(AreaConfig, HarmFrozen,
			"The previous configuration is in force. Correct the file, then run tributary reload.",
			"the configuration file is refused: %s", st.Config.Error).
			Arguments = []string{"validate", "-c", cmp.Or(st.Config.File, "FILE")}
	}
	st.addObjectProblems(&list)
	for i := range st.Sources {
		st.addSource(&list, &st.Sources[i])
	}
	st.addQuarantine(&list)
	st.addRejected(&list)
	st.addUnenforced(&list)
	st.addCertificates(&list)
	if st.History != nil && st.History.Error != "" {
		list.add(AreaHistory, HarmOther,
			"Clients are not affected, but changes are not remembered. Look at the disk of the state directory.",
			"the history cannot be written: %s", st.History.Error)
	}
	slices.SortStableFunc(list, func(a, b *Trouble) int { return cmp.Compare(a.Harm, b.Harm) })
	for _, trouble := range list {
		sorted = append(sorted, *trouble)
	}
	return sorted
}

// joinListed joins the listed ones of a total of texts, and adds the number of the others.
func joinListed(texts []string, total int, separator string) string {
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

// addSource adds the troubles of a source: its state, its hold, its storage and its duplicates.
func (st *Status) addSource(list *troubles, source *SourceState) {
	if source.State != "healthy" && len(st.Obstacles) == 0 {
		unconfirmed := ""
		if source.Unconfirmed > 0 {
			items := words.Count(source.Unconfirmed, "item is kept", "items are kept")
			unconfirmed = "; " + items + " without confirmation"
			if source.UnconfirmedUntil != nil {
				unconfirmed += " until " + source.UnconfirmedUntil.UTC().Format(time.RFC3339)
			}
		}
		list.add(AreaSource, HarmStale, sourceAdvice(source),
			"source %s is %s: %s%s", source.Name, source.State, source.Message, unconfirmed).Source = source.Name
	}
	if hold := source.Hold; hold != nil {
		deadline := ""
		if hold.EndTime != nil {
			deadline = " Without either, it ends at " + hold.EndTime.UTC().Format(time.RFC3339) + "."
		}
		trouble := list.add(AreaSource, HarmHeld,
			"The previous objects are still served. If they are gone for good, release the hold; if not, bring them back, "+
				"and the hold ends by itself."+deadline,
			"source %s lost %s, which are held: %s", source.Name, hold.Loss(), hold.Why)
		trouble.Source = source.Name
		trouble.Arguments = []string{"guard", "release", source.Name, "--hold", hold.ID}
	}
	if source.NotKept != "" {
		list.add(AreaSource, HarmOther,
			"A restart while the source is away would begin without it. Look at the disk of the state directory.",
			"source %s is not kept on disk: %s", source.Name, source.NotKept).Source = source.Name
	}
	for _, duplicate := range source.Duplicates {
		list.add(AreaObject, HarmOther, "One of them is served, and the others are not: leave one.",
			"source %s has %s more than once: that at %s is served, and not that at %s", source.Name, duplicate.Key(),
			duplicate.Winner, strings.Join(duplicate.Losers[:min(len(duplicate.Losers), maxListed)], ", ")).
			setObject(duplicate.Key()).Source = source.Name
	}
}

func (st *Status) addUnenforced(list *troubles) {
	if st.UnenforcedCount == 0 {
		return
	}
	names := words.Each(st.Unenforced, func(object UnenforcedObject) string {
		if object.Why == "" {
			return object.Key().String()
		}
		return object.Key().String() + " (" + object.Why + ")"
	})
	list.add(AreaObject, HarmRefused,
		"Give these clients inbound listeners or an identity, or enforce the rules in the services. If that is done, set "+
			"envoy: {unenforced: warn}.",
		"%s not enforced on Envoys and gRPC clients: %s",
		words.Count(st.UnenforcedCount, "security object is", "security objects are"),
		joinListed(names, st.UnenforcedCount, ", ")).setObject(st.Unenforced[0].Key())
}

func (st *Status) addQuarantine(list *troubles) {
	if st.Quarantined == 0 {
		return
	}
	text := words.Count(st.Quarantined, "object is", "objects are") + " not valid, and quarantined"
	if len(st.Invalid) > 0 {
		reasons := words.Each(st.Invalid, func(invalid Quarantined) string { return invalid.Line() })
		text += ": " + joinListed(reasons, st.Quarantined, "; ")
	}
	trouble := list.add(AreaQuarantine, HarmFrozen, "Fix each object at the location shown.", "%s", text)
	if i := slices.IndexFunc(st.Invalid, isExplainable); i >= 0 {
		trouble.setObject(st.Invalid[i].Key()).Object = nil // only the command is about this one of several objects
	} else if len(st.Invalid) > 0 {
		first := st.Invalid[0]
		trouble.Advice = fmt.Sprintf("Fix each object at the location shown: %s of %s.", first.Place, first.Source)
	}
}

// isExplainable reports whether the command explain accepts the kind and the name of an invalid object.
func isExplainable(invalid Quarantined) bool {
	schema, exists := resource.SchemaByName(string(invalid.Kind))
	_, derives := derive.KindNamed(string(invalid.Kind))
	return invalid.Name != "" && (derives || exists && schema.Kind == invalid.Kind)
}

func (st *Status) addRejected(list *troubles) {
	for _, rejected := range st.Rejected {
		harm := HarmFrozen
		subject := ClientName(rejected.Node, rejected.Peer) + " rejects"
		if rejected.UnenforcedNode != "" || rejected.Acked == "" && rejected.Fallback == "" {
			harm = HarmRefused
		}
		if rejected.Clients > 1 {
			subject = fmt.Sprintf("%s and %d more reject", ClientName(rejected.Node, rejected.Peer), rejected.Clients-1)
		}
		trouble := list.add(AreaClient, harm,
			"The client has its accepted version, or none. Fix the object; or the machine, then tributary client kick NODE.",
			"%s %s: %s; %s", subject, rejected.ResourceName(), rejected.Error, rejected.Causes())
		if len(rejected.Changed) == 1 {
			trouble.setObject(rejected.Changed[0].Key())
		}
	}
	if st.RejectedUnlisted > 0 {
		list.add(AreaClient, HarmFrozen, "Fix the objects of the listed ones first.",
			"clients reject %s that are not listed", words.Count(st.RejectedUnlisted, "more resource", "more resources"))
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
			list.add(AreaCertificates, harm, "Put the new certificate and its key in place; they are looked at every second.",
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

// ClientName names a client by its node ID, which may be missing or ambiguous, and its address.
func ClientName(node, peer string) string { return cmp.Or(node, "(no node id)") + " at " + peer }

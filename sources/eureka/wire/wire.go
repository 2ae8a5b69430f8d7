// Package wire reads what a Eureka answers, as JSON. It is pure: no I/O, no clock.
//
// Seen with the server of Spring Cloud 2023.0.3 (eureka 2.0.3). Older ones, which write JSON by way of XML, have an object where a list has
// one element, numbers as texts, and keys in other cases; that is read as well.
package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
)

// MaxInstances is how many instances an answer may have.
const MaxInstances = 100_000

// Answer is that to a request for all applications, or for what has changed of them.
type Answer struct {
	Version   int64  // that of the changes, counted by the server; of all applications it is 1
	Hash      string // how many instances there are by status, after the changes
	Instances []Instance
	Nameless  int   // instances of which not even the name can be read
	Why       error // of the first of those
}

// Key tells instances apart.
type Key struct{ App, ID string }

// Compare orders keys.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.App, o.App), cmp.Compare(k.ID, o.ID))
}

func (k Key) String() string {
	return "app " + strconv.Quote(k.App) + " instance " + strconv.Quote(k.ID)
}

// The statuses of instances. What is none of these is Unknown.
const (
	Up           = "UP"
	Down         = "DOWN"
	Starting     = "STARTING"
	OutOfService = "OUT_OF_SERVICE"
	Unknown      = "UNKNOWN"
)

// Deleted is the action of an instance that has gone.
const Deleted = "DELETED"

// Instance is one of an application. Names of applications are in upper case, as Eureka has them.
type Instance struct {
	Key
	HostName, IP        string
	Status              string // what its Eureka has it be
	Overridden          string // what somebody set it to; Unknown if nobody did
	Action              string // what became of it, in an answer with changes
	Port, SecurePort    Port
	VIP, SecureVIP      string
	DataCenterZone      string // of Amazon
	Metadata            map[string]string
	Registered, Evicted int64 // when it came and went, by the clock of the server, in ms; 0 if it did not
	Expires             int64 // when its lease ends unless it renews that before, by the clock of the server, in ms; 0 if that is not said
	Updated             int64 // when the server last changed it, in ms
	Dirty               int64 // when it last changed itself, by its own clock, in ms
	Broken              error // why it cannot be read; then there is no more than a key, and what of the rest could be
}

// Renews reports whether an instance held its lease at a time, in ms: one that went then has said so itself, and did not expire.
func (i Instance) Renews(at int64) bool { return at <= i.Expires }

// Port is one of an instance.
type Port struct {
	Number  int // 0 if it has none
	Enabled bool
}

// Decode reads an answer. What is wrong with one instance does not keep others from being read.
func Decode(body []byte) (*Answer, error) {
	var doc struct {
		Applications *struct {
			Version      *text     `json:"versions__delta"`
			Hash         *text     `json:"apps__hashcode"`
			Applications oneOrMany `json:"application"`
		} `json:"applications"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("no answer of a Eureka: %w", err)
	}
	all := doc.Applications
	if all == nil || all.Hash == nil || all.Version == nil {
		return nil, errors.New("no answer of a Eureka: it has no applications with a hash code and a version")
	}
	a := &Answer{Hash: string(*all.Hash), Version: all.Version.number()}
	for _, raw := range all.Applications {
		var app struct {
			Name      text      `json:"name"`
			Instances oneOrMany `json:"instance"`
		}
		if err := json.Unmarshal(raw, &app); errors.Is(err, errTooMany) {
			return nil, err
		} else if err != nil {
			a.nameless(fmt.Errorf("an application: %w", err))
			continue
		}
		for _, raw := range app.Instances {
			if len(a.Instances) == MaxInstances {
				return nil, errTooMany
			}
			a.add(string(app.Name), raw)
		}
	}
	a.order()
	return a, nil
}

// DecodeOne reads an answer with one instance of an application.
func DecodeOne(app string, body []byte) (*Answer, error) {
	var doc struct {
		Instance json.RawMessage `json:"instance"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("no answer of a Eureka: %w", err)
	}
	if doc.Instance == nil {
		return nil, errors.New("no answer of a Eureka: it has no instance")
	}
	a := &Answer{}
	a.add(app, doc.Instance)
	return a, nil
}

var errTooMany = fmt.Errorf("the answer has more than %d instances", MaxInstances)

func (a *Answer) nameless(why error) {
	a.Nameless++
	a.Why = cmp.Or(a.Why, why)
}

// add reads an instance of an application.
func (a *Answer) add(app string, raw json.RawMessage) {
	i, err := decodeInstance(app, raw)
	if i.ID == "" || i.App == "" {
		a.nameless(fmt.Errorf("app %q: an instance without a name: %w", app, cmp.Or(err, errors.New("it has neither instanceId nor hostName"))))
		return
	}
	i.Broken = err
	a.Instances = append(a.Instances, i)
}

// order puts the instances in order. Of several with one key the last one counts, as it does for Eureka's own clients.
func (a *Answer) order() {
	slices.Reverse(a.Instances)
	slices.SortStableFunc(a.Instances, func(x, y Instance) int { return x.Compare(y.Key) })
	a.Instances = slices.CompactFunc(a.Instances, func(x, y Instance) bool { return x.Key == y.Key })
}

func decodeInstance(app string, raw json.RawMessage) (Instance, error) {
	var doc struct {
		ID         text            `json:"instanceId"`
		App        text            `json:"app"`
		HostName   text            `json:"hostName"`
		IP         text            `json:"ipAddr"`
		Status     text            `json:"status"`
		Overridden text            `json:"overriddenStatus"`
		Action     text            `json:"actionType"`
		Port       json.RawMessage `json:"port"`
		Secure     json.RawMessage `json:"securePort"`
		VIP        text            `json:"vipAddress"`
		SecureVIP  text            `json:"secureVipAddress"`
		Metadata   values          `json:"metadata"`
		DataCenter struct {
			Metadata values `json:"metadata"`
		} `json:"dataCenterInfo"`
		Lease struct {
			Registered text `json:"registrationTimestamp"`
			Renewed    text `json:"lastRenewalTimestamp"`
			Seconds    text `json:"durationInSecs"`
			Evicted    text `json:"evictionTimestamp"`
		} `json:"leaseInfo"`
		Updated text `json:"lastUpdatedTimestamp"`
		Dirty   text `json:"lastDirtyTimestamp"`
	}
	err := json.Unmarshal(raw, &doc) // reads on behind what has the wrong type
	i := Instance{
		Key: Key{
			App: strings.ToUpper(cmp.Or(app, string(doc.App))),
			ID:  string(cmp.Or(doc.ID, text(doc.DataCenter.Metadata["instance-id"]), doc.HostName)),
		},
		HostName: names.Host(string(doc.HostName)), IP: names.Host(string(doc.IP)),
		Status: status(doc.Status), Overridden: status(doc.Overridden), Action: string(doc.Action),
		VIP: string(doc.VIP), SecureVIP: string(doc.SecureVIP),
		DataCenterZone: doc.DataCenter.Metadata["availability-zone"], Metadata: doc.Metadata,
		Registered: doc.Lease.Registered.number(), Evicted: doc.Lease.Evicted.number(), Updated: doc.Updated.number(), Dirty: doc.Dirty.number(),
	}
	if renewed, seconds := doc.Lease.Renewed.number(), doc.Lease.Seconds.number(); renewed > 0 && seconds > 0 {
		i.Expires = renewed + seconds*1000
	}
	var portErr, secureErr error
	i.Port, portErr = decodePort("port", doc.Port, true)
	i.SecurePort, secureErr = decodePort("securePort", doc.Secure, false)
	if err != nil {
		i.identify(raw)
	}
	return i, cmp.Or(err, portErr, secureErr)
}

// identify reads what can be of an instance of which something is not what it should be.
func (i *Instance) identify(raw json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return
	}
	field := func(name string) (t text) {
		if raw, there := fields[name]; there && t.UnmarshalJSON(raw) != nil {
			return ""
		}
		return t
	}
	i.ID = string(cmp.Or(text(i.ID), field("instanceId"), field("hostName")))
	i.Status = status(field("status"))
}

// decodePort reads {"$": 8080, "@enabled": "true"}, or a mere number, which is enabled or not as Eureka's clients have it be.
func decodePort(name string, raw json.RawMessage, enabled bool) (Port, error) {
	doc := struct {
		Number  text  `json:"$"`
		Enabled *text `json:"@enabled"`
	}{}
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || string(raw) == "null":
		return Port{}, nil
	case raw[0] == '{':
		if err := json.Unmarshal(raw, &doc); err != nil {
			return Port{}, fmt.Errorf("%s: %w", name, err)
		}
	default:
		if err := json.Unmarshal(raw, &doc.Number); err != nil {
			return Port{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if doc.Enabled != nil {
		enabled = names.IsTrue(string(*doc.Enabled))
	}
	if doc.Number == "" {
		return Port{}, nil
	}
	n, err := strconv.ParseUint(string(doc.Number), 10, 16)
	if err != nil && enabled {
		return Port{}, fmt.Errorf("%s: %q is none", name, string(doc.Number))
	}
	return Port{int(n), enabled && n > 0}, nil //nolint:gosec // up to 65535
}

func status(t text) string {
	switch s := strings.ToUpper(string(t)); s {
	case Up, Down, Starting, OutOfService:
		return s
	}
	return Unknown
}

// text is a text, or what was made of a number or a truth value.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, (*string)(t))
	case '{', '[':
		return fmt.Errorf("want a text, got %.20s", raw)
	case 'n': // null is as if it were not there
		return nil
	}
	*t = text(raw)
	return nil
}

func (t text) number() int64 {
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// values are names and texts. Those that start with @ are not of them, but of how they were written.
type values map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' { // where there are none
		return nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	*v = make(values, len(all))
	for key, raw := range all {
		var t text
		if strings.HasPrefix(key, "@") || t.UnmarshalJSON(raw) != nil {
			continue
		}
		(*v)[key] = string(t)
	}
	return nil
}

// oneOrMany is a list, or its only element.
type oneOrMany []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (l *oneOrMany) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '[':
		dec := json.NewDecoder(bytes.NewReader(raw))
		if _, err := dec.Token(); err != nil {
			return err
		}
		for dec.More() {
			var one json.RawMessage
			if err := dec.Decode(&one); err != nil {
				return err
			}
			if *l = append(*l, one); len(*l) > MaxInstances {
				return errTooMany
			}
		}
		return nil
	case '{':
		*l = oneOrMany{bytes.Clone(raw)}
		return nil
	case 'n':
		return nil
	}
	return fmt.Errorf("want a list, got %.20s", raw)
}

// Package wire decodes the JSON of Eureka servers. It is pure: no I/O, no clock.
//
// Seen with the server of Spring Cloud 2023.0.3 (Eureka 2.0.3). Older servers convert XML to JSON: a list with one
// element becomes that element, and numbers become strings. The package reads both.
package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
)

// MaxInstances is the maximum number of instances in an answer.
const MaxInstances = 100_000

// Answer is the answer to a request for all applications, or for recent changes.
type Answer struct {
	Instances []Instance // sorted by key, without duplicates
	Nameless  int        // instances with an unreadable key
	Why       error      // the reason for the first of them
}

// Key identifies an instance.
type Key struct {
	App string `json:"app"`
	ID  string `json:"instanceId"`
}

// Compare orders keys.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.App, other.App), cmp.Compare(k.ID, other.ID))
}

func (k Key) String() string {
	return "app " + strconv.Quote(k.App) + " instance " + strconv.Quote(k.ID)
}

// The statuses of instances. Any other text counts as Unknown.
const (
	Up           = "UP"
	Down         = "DOWN"
	Starting     = "STARTING"
	OutOfService = "OUT_OF_SERVICE"
	Unknown      = "UNKNOWN"
)

// Deleted is the action of an instance that deregistered, or after its lease expired.
const Deleted = "DELETED"

// Instance is an instance of an application. Names of applications are in upper case. Times are in milliseconds; zero
// if missing.
type Instance struct {
	Key
	HostName       string `json:"hostName"`
	IP             string `json:"ipAddr"`
	Status         string `json:"status"`           // after an override
	Overridden     string `json:"overriddenStatus"` // the status that an operator set; otherwise Unknown
	Action         string `json:"actionType"`       // in an answer with changes
	Port           Port   `json:"port"`
	SecurePort     Port   `json:"securePort"`
	VIP            string `json:"vipAddress"` // a comma-separated list, as SecureVIP
	SecureVIP      string `json:"secureVipAddress"`
	DataCenterZone string `json:"-"` // on Amazon
	Metadata       Values `json:"metadata"`
	Updated        Number `json:"lastUpdatedTimestamp"` // when the server last changed it
	Registered     Number `json:"-"`                    // by the clock of the server; each server has its own time
	Evicted        Number `json:"-"`                    // when it ended, by the clock of the server
	Dirty          Number `json:"lastDirtyTimestamp"`   // when it last changed itself, by its own clock
	Broken         error  `json:"-"`                    // an invalid field; the other fields are set
}

// Decode reads an answer. An invalid instance does not affect others.
func Decode(body []byte) (*Answer, error) {
	var document struct {
		Applications *struct {
			Version      *text     `json:"versions__delta"`
			Hash         *text     `json:"apps__hashcode"`
			Applications oneOrMany `json:"application"`
		} `json:"applications"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("no answer of a Eureka: %w", err)
	}
	applications := document.Applications
	if applications == nil || applications.Hash == nil || applications.Version == nil {
		return nil, errors.New("no answer of a Eureka: it has no applications with a hash code and a version")
	}
	answer := &Answer{}
	for _, raw := range applications.Applications {
		var application struct {
			Name      text      `json:"name"`
			Instances oneOrMany `json:"instance"`
		}
		if err := json.Unmarshal(raw, &application); errors.Is(err, errTooMany) {
			return nil, err
		} else if err != nil {
			answer.addNameless(fmt.Errorf("an application: %w", err))
			continue
		}
		for _, raw := range application.Instances {
			if len(answer.Instances) == MaxInstances {
				return nil, errTooMany
			}
			answer.add(string(application.Name), raw)
		}
	}
	// Of several instances with one key the last one counts, as for Eureka's own clients.
	slices.Reverse(answer.Instances)
	slices.SortStableFunc(answer.Instances, func(a, b Instance) int { return a.Compare(b.Key) })
	answer.Instances = slices.CompactFunc(answer.Instances, func(a, b Instance) bool { return a.Key == b.Key })
	return answer, nil
}

// Apply returns a listing after recent changes, since a server may repeat an older listing for minutes. A change that
// is older than the listed instance does not count.
func (a *Answer) Apply(changes *Answer) *Answer {
	instances := make(map[Key]Instance, len(a.Instances))
	for _, instance := range a.Instances {
		instances[instance.Key] = instance
	}
	for _, change := range changes.Instances {
		instance, listed := instances[change.Key]
		switch {
		case change.Action == Deleted && change.Evicted >= instance.Registered:
			delete(instances, change.Key)
		case change.Action != Deleted && (!listed || change.Updated > instance.Updated):
			instances[change.Key] = change
		}
	}
	after := &Answer{Nameless: a.Nameless + changes.Nameless, Why: cmp.Or(a.Why, changes.Why)}
	after.Instances = slices.SortedFunc(maps.Values(instances), func(a, b Instance) int { return a.Compare(b.Key) })
	return after
}

var errTooMany = fmt.Errorf("the answer has more than %d instances", MaxInstances)

func (a *Answer) addNameless(why error) {
	a.Nameless++
	a.Why = cmp.Or(a.Why, why)
}

// add decodes an instance of an application.
func (a *Answer) add(application string, raw json.RawMessage) {
	instance, err := decodeInstance(application, raw)
	if instance.ID == "" || instance.App == "" {
		err = cmp.Or(err, errors.New("it has neither instanceId nor hostName"))
		a.addNameless(fmt.Errorf("app %q: an instance without a name: %w", application, err))
		return
	}
	instance.Broken = err
	a.Instances = append(a.Instances, instance)
}

func decodeInstance(application string, raw json.RawMessage) (Instance, error) {
	document := struct {
		Instance

		DataCenter struct {
			Metadata Values `json:"metadata"`
		} `json:"dataCenterInfo"`
		Lease struct {
			Registered Number `json:"registrationTimestamp"`
			Evicted    Number `json:"evictionTimestamp"`
		} `json:"leaseInfo"`
	}{Instance: Instance{Port: Port{Enabled: true}}} // the default; that of the secure port is false
	err := json.Unmarshal(raw, &document) // an invalid field does not end decoding
	instance, metadata := document.Instance, document.DataCenter.Metadata
	instance.App = strings.ToUpper(cmp.Or(application, instance.App))
	instance.ID = cmp.Or(instance.ID, metadata["instance-id"], instance.HostName)
	instance.HostName, instance.IP = names.Host(instance.HostName), names.Host(instance.IP)
	instance.Status, instance.Overridden = status(instance.Status), status(instance.Overridden)
	instance.DataCenterZone = metadata["availability-zone"]
	instance.Registered, instance.Evicted = document.Lease.Registered, document.Lease.Evicted
	return instance, cmp.Or(err, instance.Port.finish("port"), instance.SecurePort.finish("securePort"))
}

func status(value string) string {
	switch upper := strings.ToUpper(value); upper {
	case Up, Down, Starting, OutOfService:
		return upper
	}
	return Unknown
}

// Port is a port of an instance.
type Port struct {
	Number  int // 0 if there is none
	Enabled bool

	invalid text
}

// UnmarshalJSON reads {"$": 8080, "@enabled": "true"}, or a number. Without @enabled, Enabled stays.
func (p *Port) UnmarshalJSON(raw []byte) error {
	document := struct {
		Number  text `json:"$"`
		Enabled text `json:"@enabled"`
	}{Enabled: text(strconv.FormatBool(p.Enabled))}
	if raw[0] != '{' || json.Unmarshal(raw, &document) != nil {
		_ = document.Number.UnmarshalJSON(raw)
	}
	p.Enabled = names.IsTrue(string(document.Enabled))
	number, err := strconv.ParseUint(string(document.Number), 10, 16)
	if err != nil {
		number, p.invalid = 0, document.Number
	}
	p.Number = int(number) //nolint:gosec // up to 65535
	return nil
}

// finish returns an error if the port is enabled and invalid.
func (p *Port) finish(name string) (err error) {
	if p.Enabled && p.invalid != "" {
		err = fmt.Errorf("%s: %q is none", name, string(p.invalid))
	}
	*p = Port{Number: p.Number, Enabled: p.Enabled && p.Number > 0}
	return err
}

// text is a JSON string, or the text of any other value.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	if *t = text(raw); string(raw) == "null" {
		*t = ""
	}
	return nil
}

// Number is a number, or its text. Zero stands for any other value.
type Number int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(raw []byte) error {
	number, _ := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	*n = Number(number)
	return nil
}

// Values is an object of texts. Keys with @ are attributes of the XML.
type Values map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(raw []byte) error {
	var fields map[string]text
	_ = json.Unmarshal(raw, &fields) // an empty element of the XML is no object
	*v = make(Values, len(fields))
	for key, value := range fields {
		if !strings.HasPrefix(key, "@") {
			(*v)[key] = string(value)
		}
	}
	return nil
}

// oneOrMany is a list, or its only element.
type oneOrMany []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (o *oneOrMany) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '[':
		decoder := json.NewDecoder(bytes.NewReader(raw))
		if _, err := decoder.Token(); err != nil {
			return err
		}
		for decoder.More() {
			var element json.RawMessage
			if err := decoder.Decode(&element); err != nil {
				return err
			}
			if *o = append(*o, element); len(*o) > MaxInstances {
				return errTooMany
			}
		}
		return nil
	case '{':
		*o = oneOrMany{bytes.Clone(raw)}
		return nil
	case 'n':
		return nil
	}
	return fmt.Errorf("want a list, got %.20s", raw)
}

// Package wire decodes the JSON of Eureka servers. It is pure: no I/O, no clock.
//
// Seen with the server of Spring Cloud 2023.0.3 (Eureka 2.0.3). Older servers convert XML to JSON: a list with one element becomes that
// element, and numbers become strings. The package reads both.
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

// MaxInstances is the maximum number of instances in an answer.
const MaxInstances = 100_000

// Answer is the answer to a request for all applications, or for recent changes.
type Answer struct {
	Instances []Instance // sorted by key, without duplicates
	Nameless  int        // instances whose key cannot be read
	Why       error      // the reason for the first of them
}

// Key identifies an instance.
type Key struct{ App, ID string }

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

// Deleted is the action of an instance that deregistered or whose lease expired.
const Deleted = "DELETED"

// Instance is an instance of an application. Names of applications are in upper case. Times are in milliseconds; zero if missing.
type Instance struct {
	Key
	HostName, IP     string
	Status           string // after an override
	Overridden       string // the status that an operator set; otherwise Unknown
	Action           string // in an answer with changes
	Port, SecurePort Port
	VIP, SecureVIP   string // comma-separated lists
	DataCenterZone   string // on Amazon
	Metadata         map[string]string
	Registered       int64 // by the clock of the server; each server has its own time
	Evicted          int64 // when it ended, by the clock of the server
	Dirty            int64 // when it last changed itself, by its own clock
	Broken           error // an invalid field; the other fields are set if they can be read
}

// Port is a port of an instance.
type Port struct {
	Number  int // 0 if there is none
	Enabled bool
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
	var document struct {
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
			Evicted    text `json:"evictionTimestamp"`
		} `json:"leaseInfo"`
		Dirty text `json:"lastDirtyTimestamp"`
	}
	err := json.Unmarshal(raw, &document)
	if err != nil { // decoding ended at that field: read the fields that identify the instance and its status
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(raw, &fields)
		for name, field := range map[string]*text{"instanceId": &document.ID, "hostName": &document.HostName, "status": &document.Status} {
			if value, present := fields[name]; present && *field == "" {
				_ = field.UnmarshalJSON(value)
			}
		}
	}
	metadata := document.DataCenter.Metadata
	instance := Instance{
		Key: Key{
			App: strings.ToUpper(cmp.Or(application, string(document.App))),
			ID:  string(cmp.Or(document.ID, text(metadata["instance-id"]), document.HostName)),
		},
		HostName: names.Host(string(document.HostName)), IP: names.Host(string(document.IP)),
		Status: status(document.Status), Overridden: status(document.Overridden), Action: string(document.Action),
		VIP: string(document.VIP), SecureVIP: string(document.SecureVIP),
		DataCenterZone: metadata["availability-zone"], Metadata: document.Metadata,
		Registered: document.Lease.Registered.number(), Evicted: document.Lease.Evicted.number(), Dirty: document.Dirty.number(),
	}
	var portErr, secureErr error
	instance.Port, portErr = decodePort("port", document.Port, true)
	instance.SecurePort, secureErr = decodePort("securePort", document.Secure, false)
	return instance, cmp.Or(err, portErr, secureErr)
}

// decodePort reads {"$": 8080, "@enabled": "true"}, or a number. enabled is Eureka's default.
func decodePort(name string, raw json.RawMessage, enabled bool) (Port, error) {
	document := struct {
		Number  text  `json:"$"`
		Enabled *text `json:"@enabled"`
	}{}
	target := any(&document.Number)
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		return Port{}, nil
	} else if raw[0] == '{' {
		target = &document
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return Port{}, fmt.Errorf("%s: %w", name, err)
	}
	if document.Enabled != nil {
		enabled = names.IsTrue(string(*document.Enabled))
	}
	if document.Number == "" {
		return Port{}, nil
	}
	number, err := strconv.ParseUint(string(document.Number), 10, 16)
	if err != nil && enabled {
		return Port{}, fmt.Errorf("%s: %q is none", name, string(document.Number))
	}
	return Port{int(number), enabled && number > 0}, nil //nolint:gosec // up to 65535
}

func status(value text) string {
	switch upper := strings.ToUpper(string(value)); upper {
	case Up, Down, Starting, OutOfService:
		return upper
	}
	return Unknown
}

// text is a JSON string, or the text of a number or boolean.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case '"':
		return json.Unmarshal(raw, (*string)(t))
	case '{', '[':
		return fmt.Errorf("want a text, got %.20s", raw)
	case 'n': // null
		return nil
	}
	*t = text(raw)
	return nil
}

func (t text) number() int64 {
	number, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// values is an object of texts. Keys with @ are attributes of the XML.
type values map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' { // an empty element of the XML
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	*v = make(values, len(fields))
	for key, raw := range fields {
		var value text
		if !strings.HasPrefix(key, "@") && value.UnmarshalJSON(raw) == nil {
			(*v)[key] = string(value)
		}
	}
	return nil
}

// oneOrMany is a list, or its only element.
type oneOrMany []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (l *oneOrMany) UnmarshalJSON(raw []byte) error {
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
			if *l = append(*l, element); len(*l) > MaxInstances {
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

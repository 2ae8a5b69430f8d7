package provider

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules that other products break, each with the text of a real provider. The numbers are those of docs/proofs.md.

// Dubbo for Java 3.3.6 with parameters that have every character in them that a URL gives a meaning to.
const richJava = `dubbo%3A%2F%2F192.0.2.2%3A28041%2Fdemo.GreetService%3Fapplication%3Drich-app%26deprecated%3Dfalse%26dubbo%3D2.0.2` +
	`%26dubbo.tag%3Dgray%26dynamic%3Dtrue%26generic%3Dfalse%26greet.return%3Dtrue%26greet.sent%3Dtrue%26greet.timeout%3D777%26group%3Dg1` +
	`%26interface%3Ddemo.GreetService%26k.amp%3Dx%26y%26k.eq%3Da%3Db%26k.pct%3D50%2525%26k.plus%3Da%2Bb%26k.slash%3Da%2Fb%3Fc%23d` +
	`%26k.space%3Da+b%26k.uni%3D%C3%A9%E4%B8%AD%26metadata-type%3Dremote%26methods%3Dadd%2Cgreet%26owner%3Dann%26prefer.serialization` +
	`%3Dhessian2%2Cfastjson2%26release%3D3.3.6%26revision%3Dprov%26service-name-mapping%3Dtrue%26side%3Dprovider%26timeout%3D1234` +
	`%26timestamp%3D1795246404074%26version%3D1.0.0%26weight%3D250`

// dubbo-go 3.3.2.
const plainGo = `tri%3A%2F%2F127.0.0.1%3A23932%2Fcom.acme.Greeter%3FIDL-mode%3Dnon-IDL%26anyhost%3Dtrue%26application%3Dgo-app` +
	`%26bean.name%3Dcom.acme.Greeter%26cluster%3Dfailover%26export%3Dtrue%26group%3Dg1%26interface%3Dcom.acme.Greeter%26loadbalance` +
	`%3Drandom%26max-server-recv-msg-size%3D4mib%26methods%3DGreet%2Cgreet%26module%3Dsample%26name%3Dgo-app%26organization%3Ddubbo-go` +
	`%26owner%3Ddubbo-go%26pid%3D11268%26registry%3Dzookeeper%26registry.role%3D3%26registry.type%3Dall%26release%3Ddubbo-golang-3.3.2` +
	`%26service.filter%3Decho%2Ctoken%2Caccesslog%2Ctps%2Cgeneric_service%2Cexecute%2Cpshutdown%26side%3Dprovider%26timestamp` +
	`%3D1795316180%26version%3D1.0.0%26weight%3D0`

func providerOf(t *testing.T, node string) Provider {
	t.Helper()
	u, err := ParseNode(node)
	require.NoError(t, err)
	p, ok, err := u.Provider()
	require.NoError(t, err)
	require.True(t, ok)
	return p
}

func TestRule1NodesDecodedOnceAndSplitByHand(t *testing.T) {
	p := providerOf(t, richJava)
	require.Equal(t, ID{"demo.GreetService", "g1", "1.0.0"}, p.ID)
	require.Equal(t, "192.0.2.2", p.Host)
	require.Equal(t, 28041, p.Port)
	require.EqualValues(t, 250, p.Weight(), "weight comes after a raw #")
	for key, value := range map[string]string{
		"k.pct": "50%25", "k.plus": "a+b", "k.space": "a b", "k.eq": "a=b", "k.slash": "a/b?c#d", "k.uni": "é中", "k.amp": "x", "y": "",
	} {
		require.Contains(t, p.Params, key)
		require.Equal(t, value, p.Params[key], key)
	}

	p = providerOf(t, plainGo)
	require.Equal(t, ID{"com.acme.Greeter", "g1", "1.0.0"}, p.ID)
	require.Equal(t, "Greet,greet", p.Params["methods"])
	require.EqualValues(t, 1795316180000, p.Timestamp, "dubbo-go counts seconds")
	require.EqualValues(t, 100, p.Weight(), "dubbo-go writes 0 for an unset weight")
	twice := providerOf(t, `tri%3A%2F%2F127.0.0.1%3A20000%2Fcom.acme.Greeter%3Fmethods%3DGreet%252CBye%26name%3Da%2Bb`)
	require.Equal(t, "Greet%2CBye", twice.Params["methods"], "a text escaped twice keeps one escape")
	require.Equal(t, "a+b", twice.Params["name"])

	p = providerOf(t, `dubbo%3A%2F%2F%5B2001%3Adb8%3A%3A5%5D%3A20880%2Fcom.acme.Demo%3Finterface%3Dcom.acme.Demo%26empty%26side%3Dprovider`)
	require.Equal(t, "2001:db8::5", p.Host)
	require.Equal(t, 20880, p.Port)
	require.Contains(t, p.Params, "empty")
	require.Equal(t, "demo-0.demo", providerOf(t, `dubbo%3A%2F%2Fdemo-0.demo%3A20880%2Fcom.acme.Demo%3Finterface%3Dcom.acme.Demo`).Host)
}

func TestRule3NewestRegistrationCounts(t *testing.T) {
	before := providerOf(t, `dubbo%3A%2F%2F192.0.2.2%3A28043%2Fdemo.GreetService%3Fapplication%3Ds1%26interface%3Ddemo.GreetService`+
		`%26timestamp%3D1795246696889%26weight%3D50`)
	after := providerOf(t, `dubbo%3A%2F%2F192.0.2.2%3A28043%2Fdemo.GreetService%3Fapplication%3Ds1%26interface%3Ddemo.GreetService`+
		`%26timestamp%3D1795246712502%26weight%3D70`)
	for _, providers := range [][]Provider{{before, after}, {after, before}} {
		merged := Merge(providers)
		require.Len(t, merged, 1)
		require.EqualValues(t, 70, merged[0].Weight())
	}
	golang := nodesOf(t, "go") // the first two are of one that was killed and started again at once
	require.EqualValues(t, 1795348532000, golang[0].Timestamp, "dubbo-go counts seconds")
	require.Equal(t, golang[1].Timestamp, Merge([]Provider{golang[1], golang[0]})[0].Timestamp)
	require.Len(t, Merge(golang), 2)
	otherGroup := after
	otherGroup.Group = "g2"
	require.Len(t, Merge([]Provider{after, otherGroup}), 2, "the group is part of a provider's identity")
}

func TestRule4NodesWithoutProviderIgnored(t *testing.T) {
	for _, node := range []string{
		`empty%3A%2F%2F0.0.0.0%2Fcom.acme.Demo%3Fcategory%3Dproviders`,
		`override%3A%2F%2F0.0.0.0%2Fcom.acme.Demo%3Fcategory%3Dconfigurators%26weight%3D200`,
		`route%3A%2F%2F0.0.0.0%2Fcom.acme.Demo%3Fcategory%3Drouters`,
		`consumer%3A%2F%2F192.0.2.3%2Fcom.acme.Demo%3Fcategory%3Dconsumers%26side%3Dconsumer`,
		`dubbo%3A%2F%2F192.0.2.3%3A20880%2Fcom.acme.Demo%3Fcategory%3Dconfigurators`,
		`injvm%3A%2F%2F127.0.0.1%2Fcom.acme.Demo%3Finterface%3Dcom.acme.Demo`,
	} {
		u, err := ParseNode(node)
		require.NoError(t, err)
		_, ok, err := u.Provider()
		require.NoError(t, err)
		require.False(t, ok, node)
	}
	for _, file := range []string{"testdata/consumers-java.txt", "testdata/consumers-go.txt"} {
		for _, node := range lines(t, file) {
			u, err := ParseNode(node)
			require.NoError(t, err)
			require.Equal(t, "consumer", u.Protocol)
			_, ok, err := u.Provider()
			require.NoError(t, err)
			require.False(t, ok, node)
		}
	}
}

func TestRule5Weight(t *testing.T) {
	for params, weight := range map[string]uint32{
		"":                                    100,
		"weight=200":                          200,
		"weight=0":                            0,
		"weight=-1":                           0,
		"weight=many":                         100,
		"weight=0&release=3.3.6":              0,
		"weight=99999999999":                  1_000_000,
		"weight=5&disabled=true":              0,
		"weight=5&enabled=false":              0,
		"disabled=false&enabled=false":        100,
		"disabled=true&enabled=true":          0,
		"weight=0&release=dubbo-golang-3.3.2": 100,
	} {
		u, err := ParseURL("dubbo://192.0.2.2:20880/com.acme.Demo?" + params)
		require.NoError(t, err)
		p, ok, err := u.Provider()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, weight, p.Weight(), params)
	}
	require.EqualValues(t, 250, providerOf(t, richJava).Weight())
	require.EqualValues(t, 100, nodesOf(t, "java")[0].Weight(), "Java writes no weight if it is unset")
	require.EqualValues(t, 100, nodesOf(t, "go")[0].Weight(), "and dubbo-go a zero")
}

func TestRule5ConfiguratorsChangeWeightAndDisabled(t *testing.T) {
	a := providerOf(t, `dubbo%3A%2F%2F192.0.2.2%3A20880%2Fcom.acme.Demo%3Fapplication%3Dapp%26interface%3Dcom.acme.Demo`)
	provider := a
	provider.Host = "192.0.2.3"
	for _, c := range []struct {
		why   string
		rules []string
		a, b  uint32
	}{
		{"for all", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&dynamic=false&enabled=true&weight=200"}, 200, 200},
		{"for one address", []string{"override://192.0.2.2:20880/com.acme.Demo?category=configurators&weight=200"}, 200, 100},
		{"for one host", []string{"override://192.0.2.2/com.acme.Demo?category=configurators&weight=200"}, 200, 100},
		{"for another port", []string{"override://192.0.2.2:20881/com.acme.Demo?category=configurators&weight=200"}, 100, 100},
		{"one address counts more", []string{
			"override://192.0.2.2:20880/com.acme.Demo?category=configurators&weight=7",
			"override://0.0.0.0/com.acme.Demo?category=configurators&weight=200",
		}, 7, 200},
		{"disabled", []string{"override://192.0.2.3:20880/com.acme.Demo?category=configurators&disabled=true"}, 100, 0},
		{"switched off", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&enabled=false&weight=200"}, 100, 100},
		{"of another version", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&version=2.0.0&weight=200"}, 100, 100},
		{"of another group", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&group=g1&weight=200"}, 100, 100},
		{"of the version that none is", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&version=0.0.0&weight=200"}, 200, 200},
		{
			"of all groups, which Dubbo does not have",
			[]string{"override://0.0.0.0/com.acme.Demo?category=configurators&group=*&version=*&weight=200"},
			100, 100,
		},
		{"of another application", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&application=other&weight=200"}, 100, 100},
		{"for consumers", []string{"override://0.0.0.0/com.acme.Demo?category=configurators&side=consumer&weight=200"}, 100, 100},
		{"by default", []string{"absent://0.0.0.0/com.acme.Demo?category=configurators&weight=200"}, 200, 200},
		{"no rule", []string{"empty://0.0.0.0/com.acme.Demo?category=configurators"}, 100, 100},
	} {
		t.Run(c.why, func(t *testing.T) {
			var rules []Configurator
			for _, text := range c.rules {
				u, err := ParseURL(text)
				require.NoError(t, err)
				if rule, ok := u.Configurator(); ok {
					rules = append(rules, rule)
				}
			}
			got := Configure([]Provider{a, provider}, rules)
			require.Equal(t, c.a, got[0].Weight())
			require.Equal(t, c.b, got[1].Weight())
			require.EqualValues(t, 100, a.Weight(), "the given providers are not changed")
		})
	}
	inGroup := a
	inGroup.Group, inGroup.Version = "g1", "1.0.0"
	for params, weight := range map[string]uint32{
		"": 100, "&group=g1": 100, "&version=1.0.0": 100, "&group=g1&version=1.0.0": 200,
		"&group=*&version=*": 100,
	} {
		u, err := ParseURL("override://0.0.0.0/com.acme.Demo?category=configurators&weight=200" + params)
		require.NoError(t, err)
		rule, _ := u.Configurator()
		require.Equal(t, weight, Configure([]Provider{inGroup}, []Configurator{rule})[0].Weight(), "of a group and version: %s", params)
	}
	golang := providerOf(t, plainGo)
	u, err := ParseURL("override://0.0.0.0/com.acme.Greeter?category=configurators&group=g1&version=1.0.0&weight=0")
	require.NoError(t, err)
	zero, _ := u.Configurator()
	require.EqualValues(t, 100, golang.Weight())
	require.Zero(t, Configure([]Provider{golang}, []Configurator{zero})[0].Weight(), "an explicit zero counts")
}

func TestRule6ZeroVersionEqualsNone(t *testing.T) {
	versioned := providerOf(t, `dubbo%3A%2F%2F192.0.2.2%3A20880%2Fcom.acme.Demo%3Fversion%3D0.0.0`)
	unversioned := providerOf(t, `dubbo%3A%2F%2F192.0.2.2%3A20880%2Fcom.acme.Demo`)
	require.Equal(t, versioned.ID, unversioned.ID)
	require.Equal(t, "com.acme.Demo", unversioned.Interface, "the path is the interface by default")
	require.Equal(t, ID{Interface: "demo.GreetService"}, nodesOf(t, "java")[0].ID)
	require.Equal(t, ID{Interface: "com.acme.Greeter"}, nodesOf(t, "go")[0].ID)
	require.Equal(t, ID{Interface: "com.acme.Greeter", Group: "g1", Version: "1.0.0"}, nodesOf(t, "go")[2].ID)
}

func TestRule7EveryProtocolOfAnInstance(t *testing.T) {
	// Java 3.3.6 with two protocols; the node has the port of the first.
	const content = `{"name":"m33two","id":"192.0.2.2:28027","address":"192.0.2.2","port":28027,"sslPort":null,` +
		`"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":"192.0.2.2:28027","name":"m33two",` +
		`"metadata":{"dubbo.endpoints":"[{\"port\":28027,\"protocol\":\"dubbo\"},{\"port\":28037,\"protocol\":\"tri\"},{\"port\":28037,` +
		`\"protocol\":\"tri\"}]","dubbo.metadata-service.url-params":"{\"prefer.serialization\":\"hessian2,fastjson2\",` +
		`\"version\":\"2.0.0\",\"dubbo\":\"2.0.2\",\"release\":\"3.3.6\",\"side\":\"provider\",\"port\":\"28037\",\"protocol\":\"tri\"}",` +
		`"dubbo.metadata.revision":"ee7925623b3f9954acbf469f311d758d","dubbo.metadata.storage-type":"local","meta-v":"2.0.0",` +
		`"timestamp":"1795246338171"}},"registrationTimeUTC":1795246338360,"serviceType":"DYNAMIC","uriSpec":null}`
	i, ok, err := ParseInstance("m33two", []byte(content))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, &MetadataService{Protocol: "tri", Port: 28037, Version: "2.0.0", V2: true}, i.Service)
	guess := i.Guess([]string{"demo.GreetService"})
	require.Len(t, guess, 2)
	require.Equal(t, 28027, guess[0].Port)
	require.Equal(t, 28037, guess[1].Port)

	golang := instancesOf(t, "go")[0]
	require.Equal(t, []Endpoint{{"tri", 29001}}, golang.Endpoints)
	require.Equal(t, &MetadataService{Protocol: "dubbo", Port: 29011, Version: "1.0.0"}, golang.Service,
		"it tells of its services by another protocol")
	require.Equal(t, "tri", golang.Guess([]string{"com.acme.Greeter"})[0].Protocol)
}

func TestRule8SpringCloudInstancesIgnored(t *testing.T) {
	const content = `{"name":"orders","id":"5f1a","address":"192.0.2.9","port":8080,"sslPort":null,` +
		`"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"application-1","name":"orders",` +
		`"metadata":{"instance_status":"UP"}},"registrationTimeUTC":1795246338360,"serviceType":"DYNAMIC",` +
		`"uriSpec":{"parts":[{"value":"scheme","variable":true}]}}`
	_, ok, err := ParseInstance("orders", []byte(content))
	require.NoError(t, err)
	require.False(t, ok)
	require.Len(t, instancesOf(t, "go"), 2)
	require.NotEmpty(t, instancesOf(t, "java"))
}

func TestRule9ParentNodesHaveForeignData(t *testing.T) {
	for language, content := range map[string]string{"Java": "127.0.0.1", "dubbo-go": ""} {
		_, _, err := ParseInstance("demo", []byte(content))
		require.Error(t, err, language)
	}
}

func TestRule11HostOfInstancePortOfService(t *testing.T) {
	metadata, skipped, err := ParseMetadata([]byte(
		`{"app":"rich","revision":"r1","services":{"g1/demo.GreetService:1.0.0:dubbo":{"name":"demo.GreetService","group":"g1",` +
			`"version":"1.0.0","protocol":"dubbo","port":28041,"path":"demo.GreetService","params":{"weight":"250","application":"rich"}},` +
			`"broken":{"port":{}},"org.apache.dubbo.metadata.MetadataService:1.0.0:dubbo":{"name":"org.apache.dubbo.metadata.MetadataService",` +
			`"protocol":"dubbo","port":28041},"demo.Bare:tri":{}}}`))
	require.NoError(t, err)
	require.Len(t, skipped, 1, "one that cannot be read holds up no other")
	i := Instance{Application: "rich", Host: "192.0.2.7", Port: 1, Endpoints: []Endpoint{{"dubbo", 28041}, {"tri", 28042}}, Timestamp: 5}
	providers := Merge(i.Providers(metadata))
	require.Len(t, providers, 2)
	require.Equal(t, "demo.Bare", providers[0].Interface)
	require.Equal(t, 28042, providers[0].Port)
	require.Equal(t, "192.0.2.7", providers[1].Host)
	require.Equal(t, 28041, providers[1].Port)
	require.EqualValues(t, 250, providers[1].Weight())
	_, _, err = ParseMetadata([]byte("null"))
	require.ErrorIs(t, err, ErrNoMetadata)

	golang := instancesOf(t, "go")[1]
	key, doc, _ := strings.Cut(lines(t, "testdata/metadata-go.txt")[0], " ")
	require.Equal(t, key, golang.Application+"/"+golang.Revision)
	metadata, skipped, err = ParseMetadata([]byte(doc))
	require.NoError(t, err)
	require.Empty(t, skipped)
	golang.Host = "192.0.2.9" // another one with the same metadata
	served := golang.Providers(metadata)
	require.Len(t, served, 1)
	require.Equal(t, []any{"192.0.2.9", 29003, "dubbo", uint32(100)},
		[]any{served[0].Host, served[0].Port, served[0].Protocol, served[0].Weight()})
	require.Equal(t, ID{Interface: "com.acme.Greeter", Group: "g2"}, served[0].ID)
}

func TestBothLevels_MakeOneEndpoint(t *testing.T) {
	inst, meta := lines(t, "testdata/instances-java.txt"), map[string]string{}
	for _, l := range lines(t, "testdata/metadata-java.txt") {
		key, doc, _ := strings.Cut(l, " ")
		meta[key] = doc
	}
	var levels [2][]Provider
	for _, node := range lines(t, "testdata/nodes-java.txt") {
		levels[0] = append(levels[0], providerOf(t, node))
	}
	for _, l := range inst {
		path, content, _ := strings.Cut(l, " ")
		app, _, _ := strings.Cut(path, "/")
		i, ok, err := ParseInstance(app, []byte(content))
		require.NoError(t, err)
		require.True(t, ok)
		doc, ok := meta[app+"/"+i.Revision]
		if !ok {
			continue
		}
		metadata, skipped, err := ParseMetadata([]byte(doc))
		require.NoError(t, err)
		require.Empty(t, skipped)
		require.Equal(t, i.Revision, metadata.Revision)
		levels[1] = append(levels[1], i.Providers(metadata)...)
	}
	rich := func(countRich []Provider) (n int) {
		for _, p := range countRich {
			if p.Application == "rich-app" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 3, rich(Merge(levels[1])))
	require.Equal(t, rich(Merge(levels[0])), rich(Merge(levels[0], levels[1])))
}

// nodesOf are the providers that real ones wrote, in java or go.
func nodesOf(t *testing.T, language string) (nodes []Provider) {
	t.Helper()
	for _, node := range lines(t, "testdata/nodes-"+language+".txt") {
		nodes = append(nodes, providerOf(t, node))
	}
	return nodes
}

// instancesOf are the instances that real ones wrote.
func instancesOf(t *testing.T, language string) (instances []Instance) {
	t.Helper()
	for _, l := range lines(t, "testdata/instances-"+language+".txt") {
		path, content, _ := strings.Cut(l, " ")
		app, _, _ := strings.Cut(path, "/")
		i, ok, err := ParseInstance(app, []byte(content))
		require.NoError(t, err)
		require.True(t, ok)
		instances = append(instances, i)
	}
	return instances
}

func lines(t *testing.T, file string) (texts []string) {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		texts = append(texts, scanner.Text())
	}
	require.NoError(t, scanner.Err())
	require.NotEmpty(t, texts)
	return texts
}

func FuzzParse(f *testing.F) {
	f.Add(richJava)
	f.Add(plainGo)
	f.Add("override://0.0.0.0/com.acme.Demo?category=configurators&~zone=a&weight=2")
	f.Add(`{"name":"a","address":"::1","port":"80","payload":{"metadata":{"dubbo.endpoints":"[{\"port\":1,\"protocol\":\"tri\"}]",` +
		`"dubbo.metadata-service.url-params":"{\"tri\":{\"port\":\"1\"}}"}}}`)
	f.Add(`{"services":{"g/i:v:p":{"port":"1"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (URL, error){ParseNode, ParseURL} {
			url, err := parse(text)
			if err != nil {
				continue
			}
			if provider, ok, err := url.Provider(); ok && err == nil {
				require.NotEmpty(t, provider.Host)
				require.Positive(t, provider.Port)
				require.LessOrEqual(t, provider.Weight(), uint32(maxWeight))
				c, _ := url.Configurator()
				require.Len(t, Merge(Configure([]Provider{provider, provider}, []Configurator{c})), 1)
			}
		}
		i, ok, err := ParseInstance("app", []byte(text))
		metadata, _, merr := ParseMetadata([]byte(text))
		if ok && err == nil {
			i.Guess([]string{"a"})
		}
		if merr == nil {
			for _, p := range (Instance{Host: "h", Port: 1}).Providers(metadata) {
				require.Positive(t, p.Port)
			}
		}
	})
}

// TestAddresses_InJavaFormat has IPv6 without brackets, where the last colon is before the port.
func TestAddresses_InJavaFormat(t *testing.T) {
	for address, want := range map[string]string{
		"fd00::5:8080": "fd00::5 8080", "fd00:0:0:0:0:0:0:5:20880": "fd00::5 20880", "fd00:0:0:0:0:0:0:5%4:20880": "fd00::5 20880",
		"[fd00::5]:80": "fd00::5 80", "[fd00::5]": "fd00::5 0",
		"fd00::5": "fd00::5 0", "fd00:0:0:0:0:0:0:5": "fd00::5 0", "10.0.0.5:1": "10.0.0.5 1", "10.0.0.5": "10.0.0.5 0", "host": "host 0",
		"Host.:1": "host 1", "::1": "::1 0",
	} {
		host, port, err := SplitAddress(address)
		require.NoError(t, err, address)
		require.Equal(t, want, fmt.Sprint(host, " ", port), address)
	}
}

// TestIPv6BothLevels_MakeOneEndpoint has the registrations of Java 3.3.6 on IPv6: in ZooKeeper the address is in
// brackets at both levels, and a rule may have brackets or not.
func TestIPv6BothLevels_MakeOneEndpoint(t *testing.T) {
	i, ok, err := ParseInstance("six",
		[]byte(`{"name":"six","id":"[fd00:0:0:0:0:0:0:2]:42881","address":"[fd00:0:0:0:0:0:0:2]","port":42881,`+
			`"payload":{"metadata":{"dubbo.endpoints":"[{\"port\":42881,\"protocol\":\"dubbo\"}]","dubbo.metadata.revision":"x"}}}`))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "fd00::2", i.Host)
	providers := i.Providers(Metadata{Services: []Service{{Name: "com.acme.Demo", Protocol: "dubbo", Port: 42881}}})
	providers = append(providers, providerOf(t, `dubbo%3A%2F%2F%5Bfd00%3A0%3A0%3A0%3A0%3A0%3A0%3A2%5D%3A42881%2Fcom.acme.Demo`),
		providerOf(t, `dubbo%3A%2F%2Ffd00%3A0%3A0%3A0%3A0%3A0%3A0%3A2%254%3A42881%2Fcom.acme.Demo`))
	merged := Merge(providers)
	require.Len(t, merged, 1)
	for _, rule := range []string{
		"override://[fd00:0:0:0:0:0:0:2]:42881/com.acme.Demo?weight=7",
		"override://0.0.0.0/com.acme.Demo?weight=7&providerAddresses=10.0.0.1:1,[fd00:0:0:0:0:0:0:2]:42881",
		"override://0.0.0.0/com.acme.Demo?weight=7&providerAddresses=fd00:0:0:0:0:0:0:2:42881",
	} {
		u, err := ParseURL(rule)
		require.NoError(t, err)
		c, ok := u.Configurator()
		require.True(t, ok)
		require.EqualValues(t, 7, Configure(merged, []Configurator{c})[0].Weight(), rule)
	}
}

// TestTruthValues_IgnoreCase has truth values as Dubbo for Java reads them (Boolean.parseBoolean): any text but true, in
// any case, is false, and an empty text is unset.
func TestTruthValues_IgnoreCase(t *testing.T) {
	for params, weight := range map[string]uint32{
		"disabled=true": 0, "disabled=TRUE": 0, "disabled=True": 0, "disabled=FALSE": 100, "disabled=yes": 100, "disabled=": 100,
		"disabled=no&enabled=false": 100,
		"enabled=false":             0, "enabled=FALSE": 0, "enabled=no": 0, "enabled=TRUE": 100, "enabled=": 100, "disabled=&enabled=no": 0,
	} {
		u, err := ParseURL("dubbo://10.0.0.5:20880/com.acme.Demo?" + params)
		require.NoError(t, err)
		p, _, err := u.Provider()
		require.NoError(t, err)
		require.Equal(t, weight, p.Weight(), params)
	}
	provider := providerOf(t, `dubbo%3A%2F%2F10.0.0.5%3A20880%2Fcom.acme.Demo`)
	for params, off := range map[string]bool{
		"disabled=TRUE": true, "disabled=TRUE&enabled=True": true, "disabled=true&enabled=FALSE": false,
		"disabled=true&enabled=no": false, "disabled=true&enabled=": true,
	} {
		u, err := ParseURL("override://0.0.0.0/com.acme.Demo?category=configurators&" + params)
		require.NoError(t, err)
		var rules []Configurator
		if c, ok := u.Configurator(); ok {
			rules = append(rules, c)
		}
		require.Equal(t, off, Configure([]Provider{provider}, rules)[0].Weight() == 0, params)
	}
}

// TestEndpoints_InVariousSpellings has endpoints as Dubbo 3.3.6 reads them (JsonUtils.toJavaList): ports as texts and
// as fractions, and a protocol in any case. Malformed endpoints are skipped, and the metadata are used instead.
func TestEndpoints_InVariousSpellings(t *testing.T) {
	for endpoints, want := range map[string][]Endpoint{
		`[{"port":"20880","protocol":"dubbo"},{"port":50051.0,"protocol":"TRI"}]`:                             {{"dubbo", 20880}, {"tri", 50051}},
		`[null,{"port":{},"protocol":"dubbo"},5,{"port":1,"protocol":"rest"}]`:                                {{"rest", 1}},
		`[{"port":99999,"protocol":"dubbo"},{"port":-1,"protocol":"tri"},{"port":20880.5,"protocol":"rest"}]`: nil,
		`{}`: nil, `"x"`: nil, `null`: nil, `[`: nil,
	} {
		i, ok, err := NewInstance("a", "10.0.0.1", 20881, map[string]string{keyEndpoints: endpoints, keyRevision: "x"})
		require.NoError(t, err, endpoints)
		require.True(t, ok)
		require.Equal(t, want, i.Endpoints, endpoints)
		providers := i.Providers(Metadata{Services: []Service{{Name: "com.acme.Demo", Protocol: "tri"}}})
		require.Len(t, providers, 1)
		require.Equal(t, cmp.Or(i.portOf("tri"), 20881), providers[0].Port, endpoints)
	}
}

// TestKeysOfDubbo26 has parameters that are set for every service of a provider.
func TestKeysOfDubbo26(t *testing.T) {
	u, err := ParseURL("dubbo://10.0.0.1:20880/a?interface=a&default.group=g1&default.weight=50&default.version=2&version=1")
	require.NoError(t, err)
	p, _, err := u.Provider()
	require.NoError(t, err)
	require.Equal(t, "g1/a:1 50", fmt.Sprint(p.ID, " ", p.Weight()))
}

// Providers returns the callable providers of an instance.
func (i Instance) Providers(m Metadata) []Provider {
	providers, _ := i.Offers(m)
	return providers
}

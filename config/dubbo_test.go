package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestDubbo(t *testing.T) {
	c, err := config.Parse("t.yaml", []byte(`configSources:
- address: zookeeper://zk1:2181?backup=zk2:2181&group=shop
  interfaces: [com.acme.*]
  hold: 1m
  servicePorts: {dubbo: 20000}
  labelParams: [owner]
`))
	require.NoError(t, err)
	s := c.ConfigSources[0].Settings.(*config.Dubbo).Source()
	require.Equal(t, []string{"com.acme.*"}, s.Interfaces)
	require.Equal(t, time.Minute, s.Hold)
	require.Equal(t, map[string]int{"dubbo": 20000}, s.Mapping.ServicePorts)

	for text, want := range map[string]string{
		"{address: 'zookeeper://a', hold: -1s}": "hold",
		"{address: 'zookeeper://a', registerMode: both}": "configSources[0].registerMode: want all, interface or " +
			"instance",
		"{address: 'zookeeper://a:b'}":                                            "configSources[0].address",
		"{address: 'zookeeper://a', tlsSettings: {mode: SIMPLE, sni: a, xyz: 1}}": "xyz",
		"{address: 'zookeeper://a', tlsSettings: {mode: MUTUAL}}":                 "configSources[0].tlsSettings",
		"{address: 'zookeeper://a', tokenFile: t}":                                "tokenFile",
		"{address: 'zookeeper://a', servicePorts: {dubbo: 70000}}":                "configSources[0].servicePorts: dubbo",
		"{address: 'zookeeper://a', subsets: zone}":                               "configSources[0].subsets",
		"{address: 'zookeeper://a', warmUp: 48h}":                                 "configSources[0].warmUp",
		"{address: 'zookeeper://a', sidecars: {hosts: [all]}}":                    "configSources[0].sidecars.hosts",
		"{address: 'zookeeper://a', registerMode: interface, applications: [a]}": "configSources[0].applications: registerMode " +
			"interface does not read applications",
		"{address: 'zookeeper://a', registerMode: interface, skipApplications: [a]}": "configSources[0].skipApplications: registerMode " +
			"interface does not read applications",
		"{address: 'zookeeper://a', registerMode: interface, askProviders: true}": "configSources[0].askProviders: registerMode ",
		"{address: 'zookeeper://a', servicePorts: {Dubbo: 20000}}": "configSources[0].servicePorts: names of protocols are in " +
			"lower case: want dubbo, got Dubbo",
		"{address: 'zookeeper://a', sidecars: {}, registerMode: instance}": "configSources[0].sidecars: ",
		"{address: 'zookeeper://a', hostTemplate: '{service}'}":            "configSources[0].hostTemplate",
	} {
		_, err := config.Parse("t.yaml", []byte("configSources: ["+text+"]"))
		require.ErrorContains(t, err, want, text)
	}
}

// TestSuspiciousSettings_AreWarnings has slips of the pen that are let pass, with their places.
func TestSuspiciousSettings_AreWarnings(t *testing.T) {
	c, err := config.Parse("t.yaml", []byte(`configSources:
- address: zookeeper://zk1:2181?bakcup=zk2:2181&version=1.0.0
  servicePorts: {dubo: 20000}
- address: consul://c:8500?kind=dubbo&partion=p
  tokenFile: /nonexistent/a
- {address: "consul://d:8500", tokenFile: /nonexistent/b}
- {address: "consul-kv://c:8500/x", tokenFile: /nonexistent/c}
`))
	require.NoError(t, err)
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.Place()+": "+w.Text())
	}
	require.Equal(t, []string{
		"t.yaml:2:12: configSources[0].address: the parameter bakcup is passed over; did you mean backup?",
		"t.yaml:4:12: configSources[1].address: the parameter partion is passed over; did you mean partition?",
		"t.yaml:3:17: configSources[0].servicePorts: unknown Dubbo protocol dubo; did you mean dubbo?",
		"t.yaml:5:14: configSources[1].tokenFile: open /nonexistent/a: no such file or directory: nothing is read until it is there",
		"t.yaml:6:43: configSources[2].tokenFile: open /nonexistent/b: no such file or directory: nothing is read until it is there",
		"t.yaml:7:48: configSources[3].tokenFile: open /nonexistent/c: no such file or directory: nothing is read until it is there",
	}, got)
}

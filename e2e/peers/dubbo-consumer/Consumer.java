import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.rpc.service.GenericService;

/** A consumer that calls com.acme.Greeter at the URL that is its argument, again and again, and says what it is answered. It asks no registry. */
public class Consumer {
    public static void main(String[] args) throws Exception {
        ApplicationConfig app = new ApplicationConfig("consumer");
        app.setQosEnable(false);
        ReferenceConfig<GenericService> reference = new ReferenceConfig<>();
        reference.setApplication(app);
        reference.setInterface("com.acme.Greeter");
        reference.setGeneric("true");
        reference.setUrl(args[0]);
        reference.setCheck(false);
        reference.setTimeout(2000);
        reference.setRetries(0);
        GenericService greeter = reference.get();
        for (;;) {
            try {
                System.out.println("ANSWER " + greeter.$invoke("Greet", new String[] {"java.lang.String"}, new Object[] {"bob"}));
            } catch (RuntimeException e) {
                System.out.println("ERROR " + e.getMessage());
            }
            Thread.sleep(200);
        }
    }
}
